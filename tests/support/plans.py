"""Asks PostgreSQL how it would run a statement file: forced generic and custom plans, whatever the statistics say."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import psycopg
from psycopg import sql

Plan = Mapping[str, Any]
Session = psycopg.Connection[Any]


def prepare(conn: Session, name: str, text: str) -> list[str]:
    """PREPARE a statement file under ``name``; returns its parameters in the order of the numbers they got."""
    order = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${order.index(match[1]) + 1}", text).replace("%%", "%")
    conn.execute(f"PREPARE {name} AS {numbered.strip().rstrip(';')}".encode())
    return order


def explain(conn: Session, name: str, order: list[str], values: Mapping[str, object], *, analyze: bool = False) -> Plan:
    """The plan of a prepared statement with these values; ``analyze`` also runs it."""
    arguments = sql.SQL(", ").join(sql.Literal(values.get(parameter)) for parameter in order)
    call = sql.SQL("EXECUTE {}({})") if order else sql.SQL("EXECUTE {}")
    options = sql.SQL("EXPLAIN (FORMAT JSON, ANALYZE {0}, BUFFERS {0}) ").format(
        sql.SQL("true" if analyze else "false")
    )
    row = conn.execute(options + call.format(sql.Identifier(name), arguments)).fetchone()
    if row is None:
        raise LookupError(name)
    found = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return cast("Plan", found[0]["Plan"])


def nodes(plan: Plan) -> Iterator[Plan]:
    """Every node of a plan, outermost first."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def indexes(plan: Plan) -> set[str]:
    """Names of the indexes that a plan reads."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def swept(plan: Plan) -> set[str]:
    """Names of the tables that a plan reads from end to end."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}


def forget_statistics(conn: Session, *tables: str) -> None:
    """As if the tables had never been analyzed; ``conn`` is a superuser's."""
    conn.execute("DELETE FROM pg_statistic WHERE starelid = ANY (%s::text[]::regclass[])", (list(tables),))
    conn.execute(
        "UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid = ANY (%s::text[]::regclass[])",
        (list(tables),),
    )
