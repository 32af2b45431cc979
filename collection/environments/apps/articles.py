"""What the wiki holds at the start: made-up islands, so that no model knows the answers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Island:
    name: str
    people: int
    lighthouse: int  # The year in which it was lit.
    ferry: str
    known_for: str

    @property
    def title(self) -> str:
        return f"{self.name} Island"

    @property
    def text(self) -> str:
        return (
            f"'''{self.title}''' is one of the [[Outer Isles]]. It is known for its {self.known_for}.\n\n"
            f"== People ==\nAt the last count {self.people} people lived on {self.title}.\n\n"
            f"== Lighthouse ==\nThe lighthouse of {self.title} was lit in {self.lighthouse} and is kept "
            f"by hand.\n\n== Getting there ==\nThe ferry ''{self.ferry}'' calls twice a week.\n"
        )


ISLANDS = (
    Island("Wren", 412, 1874, "Merle", "salt pans"),
    Island("Corran", 1280, 1851, "Saint Osyth", "boat builders"),
    Island("Tamsel", 96, 1902, "Little Auk", "black sheep"),
    Island("Ousby", 733, 1866, "Lapwing", "glass works"),
    Island("Hallin", 2054, 1839, "Northern Diver", "herring market"),
    Island("Pellow", 158, 1911, "Kittiwake", "stone circle"),
    Island("Skerrow", 341, 1888, "Grey Heron", "seal colony"),
    Island("Averne", 887, 1845, "Dunlin", "apple orchards"),
)
ARTICLES = {island.title: island.text for island in ISLANDS} | {
    "Outer Isles": "The '''Outer Isles''' are:\n" + "".join(f"* [[{island.title}]]\n" for island in ISLANDS),
    "Tide tables": "High water at the harbours of the [[Outer Isles]] is given in local time.\n",
    "Main Page": "Welcome to the wiki of the [[Outer Isles]]. See also the [[Tide tables]].\n",
}
# Passwords by account; the first keeps the wiki, the others are for episodes.
USERS = {"Keeper": "lantern-oil-1874", "Alder": "quiet-harbour-61", "Birch": "seven-gannets-28"}
