"""What the endpoints of the offline double of the Hub answer; `hub_double.py` is the server, and says how to use it."""

import base64
import email.utils
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import yaml
from hub_store import TIME, Blob, PullRequest, Refused, Repo, is_lfs

if TYPE_CHECKING:
    from hub_double import HubDouble


class Endpoints:
    """A method for each endpoint, by its name: it gives what is sent as JSON, or sends by itself and gives None."""

    hub: "HubDouble"
    command: str
    headers: Any
    query: dict[str, str]
    body: bytes
    user: str | None

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        raise NotImplementedError

    def _json(self) -> Any:
        return json.loads(self.body)

    def _repo(self, kind: str, name: str, write: bool = False) -> Repo:
        repo = self.hub.store.find(kind, name, self.user)
        if write and self.user is None:
            raise Refused(401, "Invalid username or password.")
        if write and not self.hub.store.may_write(self.user, name):
            raise Refused(403, f'You don\'t have the rights to write to "{name}"')
        return repo

    def _whoami(self) -> Any:
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        return {"type": "user", "name": self.user, "orgs": [{"name": org} for org in self.hub.store.orgs]}

    def _create(self) -> Any:
        asked = self._json()
        name = f"{asked['organization'] or self.user}/{asked['name']}"
        kind = asked.get("type") or "model"
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        if not self.hub.store.may_write(self.user, name):
            namespace = name.split("/")[0]
            raise Refused(403, f'You don\'t have the rights to create a {kind} under the namespace "{namespace}"')
        url = f"{self.hub.url}/{'' if kind == 'model' else kind + 's/'}{name}"
        if (kind, name) in self.hub.store.repos:
            self._send(409, json.dumps({"error": f"You already created this {kind} repo", "url": url}).encode())
            return None
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.store.add_repo(name, kind, private=bool(private), sdk=asked.get("sdk"))
        return {"url": url, "name": name}

    def _validate_yaml(self) -> Any:
        errors = []
        found = re.match(r"---\n(.*?)\n---\n", self._json()["content"], re.DOTALL)
        try:
            if not isinstance(yaml.safe_load(found[1] if found else "{}"), dict):
                errors.append({"message": '"metadata" must be an object'})
        except yaml.YAMLError as error:
            errors.append({"message": str(error)})
        content = json.dumps({"errors": errors, "warnings": []}).encode()
        self._send(400 if errors else 200, content)

    def _preupload(self, kind: str, name: str, revision: str) -> Any:
        repo = self._repo(kind, name, write=self.query.get("create_pr") != "1" and not revision.startswith("refs/pr/"))
        present = repo.commits(revision)[0].files
        files = []
        for file in self._json()["files"]:
            mode = "lfs" if is_lfs(file["path"], file["size"]) else "regular"
            found = {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
            files.append(found | ({"oid": present[file["path"]].etag} if file["path"] in present else {}))
        return {"files": files}

    def _batch(self, kind: str, name: str) -> Any:
        self._repo(kind, name)
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        objects: list[dict[str, Any]] = []
        for asked in self._json()["objects"]:
            objects.append(dict(asked))
            if asked["oid"] in self.hub.store.objects:
                continue
            href, header = f"{self.hub.url}/objects/{asked['oid']}", {}
            if asked["size"] > self.hub.multipart_over:
                parts = -(-asked["size"] // self.hub.multipart_over)
                header = {str(i): f"{href}/{i}" for i in range(1, parts + 1)}
                header["chunk_size"] = str(self.hub.multipart_over)
                upload = {"href": f"{href}/complete", "header": header}
            else:
                upload = {"href": f"{href}?signature=secret", "header": header}
            objects[-1]["actions"] = {"upload": upload, "verify": {"href": f"{href}/verify"}}
        return {"transfer": "multipart", "objects": objects}

    def _put(self, oid: str, part: str | None) -> Any:
        if part is None:
            self._keep(oid, self.body)
        else:
            self.hub.store.parts.setdefault(oid, {})[int(part)] = self.body
        self._send(200, b"", {"ETag": f'"{Blob(self.body, False).oid}"'})

    def _keep(self, oid: str, content: bytes) -> None:
        if Blob(content, True).sha256 != oid:
            raise Refused(400, "The content does not match the sha256 it was announced with")
        self.hub.store.objects[oid] = content

    def _complete(self, oid: str) -> Any:
        parts = self.hub.store.parts.pop(oid)
        self._keep(oid, b"".join(parts[part["partNumber"]] for part in self._json()["parts"]))
        return {"success": True}

    def _verify(self, oid: str) -> Any:
        if len(self.hub.store.objects.get(oid, b"")) != self._json()["size"]:
            raise Refused(404, "Object not found")
        return {"success": True}

    def _commit(self, kind: str, name: str, revision: str) -> Any:
        pull = self.query.get("create_pr") == "1"
        repo = self._repo(kind, name, write=not pull and not revision.startswith("refs/pr/"))
        if self.user is None:
            raise Refused(401, "Invalid username or password.")
        files = dict(repo.commits(revision)[0].files)
        header: dict[str, Any] = {}
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                header = value
            elif line["key"] == "file":
                files[value["path"]] = Blob(base64.b64decode(value["content"]), False)
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.store.objects:
                    raise Refused(400, f"Your push was rejected: the object of {value['path']} is missing")
                files[value["path"]] = Blob(self.hub.store.objects[value["oid"]], True)
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            elif line["key"] == "deletedFolder":
                files = {path: blob for path, blob in files.items() if not path.startswith(value["path"])}
        if header.get("parentCommit", repo.commits(revision)[0].oid) != repo.commits(revision)[0].oid:
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        done = {"success": True}
        if pull:
            made = repo.open_pull_request(header["summary"], header["description"], self.user, "open")
            revision = f"refs/pr/{made.num}"
            done["pullRequestUrl"] = f"{self._url(repo)}/discussions/{made.num}"
        commit = repo.commit(revision, header["summary"], header["description"], self.user, files)
        return done | {"commitUrl": f"{self._url(repo)}/commit/{commit.oid}", "commitOid": commit.oid}

    def _url(self, repo: Repo) -> str:
        return f"{self.hub.url}/{'' if repo.kind == 'model' else repo.kind + 's/'}{repo.name}"

    def _discussions(self, kind: str, name: str) -> Any:
        repo = self._repo(kind, name)
        if self.command == "POST":
            if self.user is None:
                raise Refused(401, "Invalid username or password.")
            asked = self._json()
            made = repo.open_pull_request(asked["title"], asked["description"], self.user, "draft")
            return {"num": made.num, "pullRequest": True, "url": f"{self._url(repo)}/discussions/{made.num}"}
        wanted = {"open": ("open", "draft"), "closed": ("closed", "merged")}.get(self.query.get("status", ""))
        found = [
            self._described(repo, made)
            for made in repo.pull_requests
            if self.query.get("author", made.author) == made.author and (wanted is None or made.status in wanted)
        ]
        start = 10 * int(self.query.get("p", 0))
        return {"count": len(found), "start": start, "discussions": found[start : start + 10]}

    def _described(self, repo: Repo, made: PullRequest) -> dict[str, Any]:
        found = {"title": made.title, "num": made.num, "status": made.status, "isPullRequest": True}
        found |= {"author": {"name": made.author}, "createdAt": TIME, "repo": {"name": repo.name, "type": repo.kind}}
        return found | {"changes": {"base": "refs/heads/main"}, "filesWithConflicts": [], "events": []}

    def _discussion(self, kind: str, name: str, num: str) -> Any:
        repo = self._repo(kind, name)
        return self._described(repo, repo.pull_requests[int(num) - 1])

    def _info(self, kind: str, name: str, revision: str | None) -> Any:
        repo = self._repo(kind, name)
        newest = repo.commits(revision or "main")[0]
        found = {"id": name, "_id": "0" * 24, "author": name.split("/")[0], "sha": newest.oid, "private": repo.private}
        found |= {"lastModified": TIME, "createdAt": TIME, "gated": repo.gated, "disabled": False, "downloads": 0}
        siblings = [{"rfilename": path} for path in sorted(newest.files)]
        if self.query.get("expand") == "evalResults":
            found["evalResults"] = [
                {"filename": path, "data": item}
                for path, blob in newest.files.items()
                if path.startswith(".eval_results/")
                for item in yaml.safe_load(blob.content)
            ]
        return found | {"likes": 0, "tags": [], "siblings": siblings, "sdk": repo.sdk}

    def _tree(self, kind: str, name: str, revision: str, path: str | None) -> Any:
        files = self._repo(kind, name).commits(revision)[0].files
        prefix = f"{path}/" if path else ""
        below = {file: blob for file, blob in sorted(files.items()) if file.startswith(prefix)}
        if path and not below:
            raise Refused(404, f"{path} does not exist on {revision}", "EntryNotFound")
        found = {}
        for file, blob in below.items():
            folders = [file[:i] for i, letter in enumerate(file) if letter == "/" and i > len(prefix)]
            recursive = self.query.get("recursive", "").lower() == "true"
            for folder in folders if recursive else folders[:1]:
                found[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
            if recursive or not folders:
                found[file] = blob.info(file)
        return list(found.values())

    def _paths_info(self, kind: str, name: str, revision: str) -> Any:
        files = self._repo(kind, name).commits(revision)[0].files
        is_json = "json" in self.headers.get("Content-Type", "")
        paths = self._json()["paths"] if is_json else parse_qs(self.body.decode()).get("paths", [])
        folders = {file[:i] for file in files for i, letter in enumerate(file) if letter == "/"}
        found = [files[path].info(path) for path in paths if path in files]
        return found + [
            {"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in paths if path in folders
        ]

    def _refs(self, kind: str, name: str) -> Any:
        branches = self._repo(kind, name).branches
        refs = [
            {"name": key.removeprefix("refs/pr/"), "ref": key if "/" in key else f"refs/heads/{key}"}
            | {"targetCommit": commits[0].oid}
            for key, commits in branches.items()
        ]
        pulls = [ref for ref in refs if "/pr/" in ref["ref"]]
        return {"branches": [r for r in refs if r not in pulls], "tags": [], "converts": [], "pullRequests": pulls}

    def _commits(self, kind: str, name: str, revision: str) -> Any:
        commits = self._repo(kind, name).commits(revision)
        rest = {"date": TIME, "formatted": {}}
        return [{"id": c.oid, "title": c.title, "message": "", "authors": [{"user": c.author}]} | rest for c in commits]

    def _settings(self, kind: str, name: str) -> Any:
        repo = self._repo(kind, name, write=True)
        repo.gated = self._json().get("gated", repo.gated)
        return {"gated": repo.gated}

    def _leaderboard(self, kind: str, name: str) -> Any:
        self._repo(kind, name)
        if name not in self.hub.store.leaderboards:
            raise Refused(404, "This dataset has no leaderboard")
        return self.hub.store.leaderboards[name]

    def _resolve(self, kind: str, name: str, revision: str, path: str) -> Any:
        newest = self._repo(kind, name).commits(revision)[0]
        if path not in newest.files:
            raise Refused(404, "Entry not found", "EntryNotFound")
        blob = newest.files[path]
        headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", "ETag": f'"{blob.etag}"'}
        headers |= {"X-Repo-Commit": newest.oid, "Last-Modified": email.utils.formatdate(0, usegmt=True)}
        content, status = blob.content, 200
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked:
            size = len(content)
            first = int(asked[1]) if asked[1] else size - int(asked[2])
            last = min(int(asked[2]) if asked[1] and asked[2] else size - 1, size - 1)
            if first >= size:
                raise Refused(416, "Range Not Satisfiable")
            content, status = content[first : last + 1], 206
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self._send(status, content, headers)
