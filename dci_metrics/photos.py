"""The archive of photos, fetched with the list of links that Meta gives to those who accept its licence."""

import csv
import sys
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

from dci import PHOTO_ARCHIVE, PHOTOS_PAGE, DCIError
from dci_metrics.download import Download

ARCHIVE_BYTES = 11_349_313_299
"""Bytes of the archive from which DCI took its photos."""

MAX_LINKS_BYTES = 16 * 2**20
"""The list has about a thousand lines; what is larger is no list."""

COLUMNS = ("file_name", "cdn_link")

_GET_LINKS = f"fill in the form at {PHOTOS_PAGE} and save the list of links that it gives"


def fetch_photos(links: Path, out: Path) -> Path:
    """Download the archive of SA-1B that holds DCI's photos, and no other.

    It has its name when it is whole; until then `sa_000138.tar.part` grows beside it, and another call goes on with it.

    Args:
        links: The list of links that Meta's licence form gives: `file_name` and `cdn_link`, with a tab between.
        out: The folder to put it into; made if it is not there.

    Returns:
        The archive.

    Raises:
        DCIError: If the list is not one, or names no such archive; if its links have expired; if the disk has no
            room; if the connection fails again and again.
    """
    url = read_link(links)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DCIError(f"{out}: cannot be made ({error.strerror}); name another folder with --out") from error
    archive = out / PHOTO_ARCHIVE
    if archive.exists():
        if not archive.is_file() or archive.stat().st_size != ARCHIVE_BYTES:
            found = f"has {archive.stat().st_size:,} bytes" if archive.is_file() else "is no file"
            raise DCIError(
                f"{archive}: is there already, but {found} where {ARCHIVE_BYTES:,} are expected; remove it, or, if a "
                f"download broke off, rename it to {archive.name}.part to go on with it"
            )
        return archive
    refused = f"the link has expired: {_GET_LINKS} again, then run this with the new list"
    Download(url, archive, ARCHIVE_BYTES, refused, _check_tar).run()
    size = archive.stat().st_size
    if size != ARCHIVE_BYTES:
        # Whole as the server has it. Whether a photo is missing is found before any is used.
        print(
            f"warning: {archive} has {size:,} bytes; the archive that DCI was made from has {ARCHIVE_BYTES:,}. Meta "
            "may have changed it: `dci build` says whether photos are missing",
            file=sys.stderr,
        )
    return archive


def read_link(links: Path) -> str:
    """The address of DCI's archive in the list of links.

    Raises:
        DCIError: If it is not such a list, or does not name the archive.
    """
    rows = _read_table(links)
    header = [name.strip() for name in rows[0]]
    if not set(COLUMNS) <= set(header):
        raise DCIError(
            f"{links}: its first line is {_shown(rows[0])}; expected `file_name` and `cdn_link` with a tab between; "
            f"{_GET_LINKS} as it is"
        )
    name_at, link_at = (header.index(column) for column in COLUMNS)
    for number, row in enumerate(rows[1:], 2):
        if len(row) > name_at and row[name_at].strip() == PHOTO_ARCHIVE:
            url = row[link_at].strip() if len(row) > link_at else ""
            if not _is_address(url):
                raise DCIError(
                    f"{links}: line {number}: field `cdn_link`: expected an address, got something else; "
                    f"{_GET_LINKS} as it is"
                )
            return url
    raise DCIError(
        f"{links}: lists {len(rows) - 1} files, but not {PHOTO_ARCHIVE}; expected the list of all of SA-1B: "
        f"{_GET_LINKS}"
    )


def _read_table(links: Path) -> list[list[str]]:
    try:
        if links.stat().st_size > MAX_LINKS_BYTES:
            raise DCIError(f"{links}: is too large for a list of links; {_GET_LINKS}")
        text = links.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DCIError(f"{links}: cannot be read ({error.strerror}); {_GET_LINKS}") from error
    except UnicodeDecodeError as error:
        raise DCIError(f"{links}: is not a text file; {_GET_LINKS}") from error
    if text.lstrip()[:1] == "<":
        raise DCIError(f"{links}: is a web page, not the list of links that is on it; {_GET_LINKS} as a text file")
    try:
        rows = [row for row in csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE) if any(row)]
    except csv.Error as error:  # a line without end
        raise DCIError(f"{links}: is no list of links ({error}); {_GET_LINKS}") from error
    if not rows:
        raise DCIError(f"{links}: is empty; {_GET_LINKS}")
    return rows


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _shown(row: list[str]) -> str:
    """A line without what may be a signed address in it."""
    line = " ".join(row).strip()
    return repr(line[:40] + ("…" if len(line) > 40 else "")) if "://" not in line else "not a header"


def _check_tar(first: bytes) -> None:
    try:
        tarfile.TarInfo.frombuf(first, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError as error:
        raise DCIError(
            f"{PHOTO_ARCHIVE}: what the server sends under this link is no tar archive: {_GET_LINKS} again"
        ) from error
