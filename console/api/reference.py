"""The published schema, and the reference page's content read from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator

Node = Mapping[str, Any]
REF = "#/components/schemas/"
DEPTH = 3  # dots in the longest name that is shown


@cache
def schema_text() -> str:
    """The OpenAPI document; it depends on the code alone, so each process makes it once."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return json.dumps(schema, indent=1, default=str)


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter or one field of a body."""

    name: str
    type: str
    required: bool
    help: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One status that a call may answer with, and the fields of its body."""

    status: str
    help: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call."""

    id: str
    method: str
    path: str
    help: str
    parameters: tuple[Field, ...]
    body: tuple[Field, ...]
    answers: tuple[Answer, ...]
    refusals: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The calls about one kind of thing."""

    name: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """Everything that the page shows."""

    about: str
    groups: tuple[Group, ...]


@cache
def reference() -> Reference:
    """Made once a process, like the schema."""
    schema = json.loads(schema_text())
    reader = SchemaReader(schema["components"]["schemas"])
    groups: dict[str, list[Operation]] = {}
    for path, item in schema["paths"].items():
        for method, node in item.items():
            groups.setdefault(node["tags"][0], []).append(reader.operation(method, path, node))
    return Reference(plain(schema["info"]), tuple(Group(name, tuple(found)) for name, found in sorted(groups.items())))


class SchemaReader:
    """Follows references and puts types into words."""

    def __init__(self, schemas: Mapping[str, Node]) -> None:
        self.schemas = schemas

    def operation(self, method: str, path: str, node: Node) -> Operation:
        answers = [self._answer(status, answer) for status, answer in node["responses"].items()]
        return Operation(
            id=node["operationId"],
            method=method.upper(),
            path=path,
            help=plain(node),
            parameters=tuple(map(self._parameter, node.get("parameters", ()))),
            body=tuple(self.fields(self._content(node.get("requestBody", {})))),
            answers=tuple(answer for answer in answers if answer.status < "300"),
            refusals=tuple(answer for answer in answers if answer.status >= "300"),
        )

    def _parameter(self, node: Node) -> Field:
        words = self.type_of(node["schema"])
        return Field(node["name"], words, node.get("required", False), plain(node), node["in"])

    def _answer(self, status: str, node: Node) -> Answer:
        fields = tuple(self.fields(self._content(node))) if status < "300" else ()
        return Answer(status, plain(node), fields)

    def _content(self, node: Node) -> Node:
        schema: Node = node.get("content", {}).get("application/json", {}).get("schema", {})
        return schema

    def fields(self, node: Node, prefix: str = "") -> Iterator[Field]:
        """The fields of an object, those of objects inside with dotted names."""
        node = self._resolved(node)
        required = node.get("required", ())
        for name, inner in node.get("properties", {}).items():
            yield Field(prefix + name, self.type_of(inner), name in required, plain(inner))
            target, path = self._inside(name, inner)
            if prefix.count(".") < DEPTH and "properties" in target:
                yield from self.fields(target, f"{prefix}{path}.")

    def _inside(self, name: str, node: Node) -> tuple[Node, str]:
        """What a field holds, and how its parts are named: ``x``, ``x[]`` of a list, ``x.*`` of a mapping."""
        path = name
        while "items" in node or isinstance(node.get("additionalProperties"), dict):
            path += "[]" if "items" in node else ".*"
            node = node["items"] if "items" in node else node["additionalProperties"]
        return self._resolved(node), path

    def _resolved(self, node: Node) -> Node:
        if "$ref" in node:
            return self._resolved(self.schemas[node["$ref"].removeprefix(REF)])
        for word in ("allOf", "oneOf"):
            if word in node:
                return self._resolved(next((one for one in node[word] if "$ref" in one), node[word][0]))
        return node

    def type_of(self, node: Node) -> str:
        """The type in words: ``integer, 1 to 9``; ``queued | running``; ``list of Named``."""
        if "$ref" in node:
            target = self._resolved(node)
            return " | ".join(map(str, target["enum"])) if "enum" in target else node["$ref"].removeprefix(REF)
        for word in ("allOf", "oneOf"):
            if word in node:
                return " or ".join(dict.fromkeys(filter(None, map(self.type_of, node[word]))))
        if "enum" in node:
            return " | ".join(map(str, node["enum"]))
        if "items" in node:
            return f"list of {self.type_of(node['items'])}"
        kind = node.get("type", "")
        words = " or ".join(kind) if isinstance(kind, list) else kind
        return words + _bounds(node)


def plain(node: Node) -> str:
    """The description without the marks of its Markdown."""
    return str(node.get("description", "")).replace("`", "")


def _bounds(node: Node) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", from {low}"
    most = node.get("maxLength")
    return f", at most {most} characters" if most else f", {node['format']}" if "format" in node else ""
