"""What the offline double of the Hub keeps: repos, their commits and files, large objects, pull requests, users."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping

LFS_ENDINGS = (".parquet", ".safetensors", ".bin", ".arrow", ".gz", ".zip", ".tar")
LFS_BYTES = 10_000_000
GITATTRIBUTES = "".join(f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LFS_ENDINGS).encode()
TIME = "2026-01-02T03:04:05.000Z"


class Refused(Exception):  # noqa: N818
    """An answer other than 200: its status, message, and the Hub's own code for it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def is_lfs(path: str, size: int) -> bool:
    """Whether the Hub wants a file as a large object."""
    return size > LFS_BYTES or path.endswith(LFS_ENDINGS)


def git_oid(content: bytes) -> str:
    """The name git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclasses.dataclass(frozen=True)
class Blob:
    """A file's content, and whether it lies among the large objects."""

    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """Of the file in git: for a large object, of the pointer to it."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        return git_oid(pointer.encode() if self.lfs else self.content)

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid

    def info(self, path: str) -> dict:
        found = {"type": "file", "path": path, "size": len(self.content), "oid": self.oid}
        if self.lfs:
            found["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": 134}
        return found


@dataclasses.dataclass(frozen=True)
class Commit:
    """One state of a repo."""

    title: str
    description: str
    author: str
    files: Mapping[str, Blob]
    parent: str | None = None

    @property
    def oid(self) -> str:
        tree = sorted((path, blob.oid) for path, blob in self.files.items())
        return hashlib.sha1(json.dumps([self.title, self.author, self.parent, tree]).encode()).hexdigest()


@dataclasses.dataclass
class PullRequest:
    """A pull request, with its commits in the branch `refs/pr/<num>`."""

    num: int
    title: str
    description: str
    author: str
    status: str  # "open", "draft", "closed", "merged"


@dataclasses.dataclass
class Repo:
    """A repo. `commits` and `files` are what tests look at."""

    kind: str
    name: str
    private: bool = False
    sdk: str | None = None
    gated: str | bool = False
    branches: dict[str, list[Commit]] = dataclasses.field(default_factory=dict)
    pull_requests: list[PullRequest] = dataclasses.field(default_factory=list)

    def commits(self, revision: str = "main") -> list[Commit]:
        """From the newest to the oldest; the last one is the Hub's own."""
        if revision in self.branches:
            return self.branches[revision]
        for commits in self.branches.values():
            for i, commit in enumerate(commits):
                if commit.oid == revision:
                    return commits[i:]
        raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """Contents by path, without `.gitattributes`."""
        blobs = self.commits(revision)[0].files
        return {path: blob.content for path, blob in sorted(blobs.items()) if path != ".gitattributes"}

    def commit(self, revision: str, title: str, description: str, author: str, files: Mapping[str, Blob]) -> Commit:
        before = self.branches.setdefault(revision, [])
        made = Commit(title, description, author, dict(files), before[0].oid if before else None)
        before.insert(0, made)
        return made

    def open_pull_request(self, title: str, description: str, author: str, status: str) -> PullRequest:
        made = PullRequest(len(self.pull_requests) + 1, title, description, author, status)
        self.pull_requests.append(made)
        self.branches[f"refs/pr/{made.num}"] = list(self.branches["main"])
        return made

    def merge(self, num: int) -> None:
        """As a click on "Merge" does."""
        self.pull_requests[num - 1].status = "merged"
        newest = self.commits(f"refs/pr/{num}")[0]
        self.commit("main", newest.title, newest.description, newest.author, newest.files)


@dataclasses.dataclass
class Store:
    """All of it.

    Attributes:
        tokens: The user that each token belongs to; a user may also write in the namespaces of `orgs`.
        objects: Large objects by sha256.
    """

    tokens: dict[str, str]
    orgs: dict[str, list[str]]
    repos: dict[tuple[str, str], Repo] = dataclasses.field(default_factory=dict)
    objects: dict[str, bytes] = dataclasses.field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = dataclasses.field(default_factory=dict)
    leaderboards: dict[str, list[dict]] = dataclasses.field(default_factory=dict)

    def add_repo(
        self,
        name: str,
        kind: str = "model",
        files: Mapping[str, bytes | str] | None = None,
        private: bool = False,
        sdk: str | None = None,
    ) -> Repo:
        """A repo that is there already."""
        repo = self.repos[kind, name] = Repo(kind, name, private, sdk)
        blobs = {".gitattributes": Blob(GITATTRIBUTES, False)}
        for path, content in (files or {}).items():
            content = content.encode() if isinstance(content, str) else content
            blobs[path] = Blob(content, is_lfs(path, len(content)))
            if blobs[path].lfs:
                self.objects[blobs[path].sha256] = content
        repo.commit("main", "initial commit", "", name.split("/")[0], blobs)
        return repo

    def may_write(self, user: str | None, name: str) -> bool:
        return user is not None and name.split("/")[0] in (user, *self.orgs.get(user, []))

    def find(self, kind: str, name: str, user: str | None) -> Repo:
        """A repo that this user may read.

        Raises:
            Refused: As the Hub does: nobody learns whether a private repo exists.
        """
        repo = self.repos.get((kind, name))
        if repo is None or (repo.private and not self.may_write(user, name)):
            if user is None:
                raise Refused(401, "Invalid username or password.", "RepoNotFound")
            raise Refused(404, "Repository not found", "RepoNotFound")
        return repo
