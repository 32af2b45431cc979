"""Storage state: cookies and localStorage of sites, in Playwright's file format.

A state is bound to sites as secrets are: an episode gets what belongs to the registrable domain of its task.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collection.browser.guard.policy import HostSource, RequestTarget, read_url, site_sources
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import replacing, write_all


class _Part(BaseModel):
    # Playwright adds fields, such as indexedDB; what is not known here is not restored.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class Cookie(_Part):
    """A cookie; a domain without a leading dot is one host. `expires` is -1 for a session's."""

    name: str
    value: str
    domain: str = Field(min_length=1)
    path: str = "/"
    expires: float = -1
    http_only: bool = Field(default=False, alias="httpOnly")
    secure: bool = False
    same_site: Literal["Strict", "Lax", "None"] = Field(default="Lax", alias="sameSite")

    @property
    def host(self) -> str:
        return self.domain.removeprefix(".")

    def to_devtools(self) -> dict[str, Any]:
        """Returns the parameter of `Network.setCookie`."""
        values = self.model_dump(by_alias=True)
        if self.expires < 0:
            del values["expires"]
        if not self.domain.startswith("."):
            # With a domain, the cookie would belong to all hosts below it, too.
            del values["domain"]
            values["url"] = f"{'https' if self.secure else 'http'}://{self.host}{self.path}"
        return values


class _Item(_Part):
    name: str
    value: str


class OriginStorage(_Part):
    """The localStorage of an origin such as `https://shop.example`."""

    origin: str
    local_storage: tuple[_Item, ...] = Field(default=(), alias="localStorage")


class StorageState(_Part):
    """Cookies and localStorage.

    Attributes:
      origins: one entry each.
    """

    cookies: tuple[Cookie, ...] = ()
    origins: tuple[OriginStorage, ...] = ()

    def of(self, website: str) -> StorageState:
        """Returns what belongs to a website's registrable domain."""
        sources = [HostSource.parse(f"{source.partition(':')[0]}:*") for source in site_sources(website)]

        def own(url: str) -> bool:
            target = read_url(url)
            return isinstance(target, RequestTarget) and any(one.matches(target) for one in sources)

        return StorageState(
            cookies=tuple(one for one in self.cookies if own(f"https://{one.host}/")),
            origins=tuple(one for one in self.origins if own(one.origin)),
        )

    @property
    def hosts(self) -> list[str]:
        """Hosts that the state is for."""
        return sorted({one.host for one in self.cookies} | {one.origin for one in self.origins})

    def write(self, path: pathlib.Path) -> None:
        """Writes the state, readable by its owner only."""
        data = json.dumps(self.model_dump(by_alias=True), indent=1).encode()
        with replacing(path) as temporary:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                write_all(file, data)
            finally:
                os.close(file)


@functools.cache
def read_state(file: str) -> StorageState:
    """Reads a state once per process.

    Raises:
      UserError: the file is missing, or no storage state; its values are not quoted.
    """
    name = f"config.browser.storage_state={file}"
    try:
        return StorageState.model_validate_json(pathlib.Path(file).read_bytes())
    except OSError as error:
        raise UserError(f"{name}: {error.strerror or error}") from error
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise UserError(
            f"{name}: {where}: {problem['msg']}; it has to be Playwright's JSON of cookies and origins"
        ) from None


def check_state(file: str, websites: list[str]) -> None:
    """Raises UserError if a state has nothing for any of the tasks' sites; "" is no state."""
    if not file:
        return
    state = read_state(file)
    if not any(part.cookies or part.origins for part in map(state.of, websites)):
        hosts = ", ".join(state.hosts[:3]) or "no site"
        raise UserError(
            f"config.browser.storage_state={file}: it is for {hosts}, and no task is there; leave it empty"
        )
