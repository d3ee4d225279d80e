"""Mappings of values to partitions: which fields they make, and why others make none."""

from __future__ import annotations

import re
from pathlib import Path as File
from typing import Final

import pytest

from sfn.spark.manage_target import (
    TRANSFORMS_BY_TYPE,
    ColumnPath,
    InvalidMappings,
    PartitionMappings,
    list_choices,
    parse_partition_fields,
)

COLUMNS = {
    ("order_ts",): "timestamp",
    ("local_ts",): "timestamp_ntz",
    ("day",): "date",
    ("customer_id",): "bigint",
    ("amount",): "decimal(9,2)",
    ("price",): "double",
    ("paid",): "boolean",
    ("region",): "string",
    ("body",): "binary",
    ("tags",): "array<string>",
    ("place",): "struct<city:string,at:timestamp>",
    ("place", "city"): "string",
    ("place", "at"): "timestamp",
    ("order, id",): "int",
    ("region_trunc_2",): "string",
    ("region_trunc_2_1",): "string",
}
PARTITIONED = ("region_trunc_2",)
ALREADY = (
    "the table is partitioned by this column already, leave it out or take order_ts, local_ts, day, customer_id, "
    "amount, price, paid, region, body, place.city, place.at, order, id, region_trunc_2_1"
)
PAGE: Final = File(__file__).parents[2] / "docs" / "spark" / "manage.md"
WHOLE = "identity, truncate[W] or bucket[N]"
NONE = "a mapping is 1-1, identity, or n-1, bucket[N], truncate[W], year, month, day or hour, which {} is not"


def sql(told: PartitionMappings) -> list[str]:
    return [field.sql for field in parse_partition_fields(told, COLUMNS, PARTITIONED)]


def problems(told: PartitionMappings) -> tuple[str, ...]:
    with pytest.raises(InvalidMappings) as refused:
        parse_partition_fields(told, COLUMNS, PARTITIONED)
    assert str(refused.value) == "; ".join(refused.value.problems)
    return refused.value.problems


@pytest.mark.parametrize(
    ("told", "made"),
    [
        ("", []),
        ("  ", []),
        ({}, []),
        ("order_ts=days, customer_id=bucket[8]", ["days(`order_ts`)", "bucket(8, `customer_id`)"]),
        ("order_ts = Day ,customer_id = BUCKET[ 8 ]", ["days(`order_ts`)", "bucket(8, `customer_id`)"]),
        ({"customer_id": ["bucket[8]", "truncate[100]"]}, ["bucket(8, `customer_id`)", "truncate(100, `customer_id`)"]),
        ("customer_id=bucket[8], customer_id=bucket[16]", ["bucket(8, `customer_id`)", "bucket(16, `customer_id`)"]),
        ("ORDER_TS=hour", ["hours(`order_ts`)"]),
        ("place.at=years, place.city=identity", ["years(`place`.`at`)", "`place`.`city`"]),
        ("`order, id`=truncate[10]", ["truncate(10, `order, id`)"]),
        ("order_ts=identity, order_ts=month", ["`order_ts`", "months(`order_ts`)"]),
        ("region=bucket[2147483647]", ["bucket(2147483647, `region`)"]),
        # Iceberg would call it as a column is called, and refuse that.
        ("region=truncate[2]", ["truncate(2, `region`) AS `region_trunc_2_2`"]),
    ],
)
def test_mappings_make_fields(told: PartitionMappings, made: list[str]) -> None:
    assert sql(told) == made


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ("ordr_ts=days", "ordr_ts=days: no such column, did you mean order_ts?"),
        ("region_trunc_2=identity", ALREADY),
        ("Region_trunc_2=bucket[4]", ALREADY),
        ("region=days", f"region=days: string takes {WHOLE}"),
        ("amount=hour", f"decimal(9,2) takes {WHOLE}"),
        ("body=year", f"binary takes {WHOLE}"),
        ("price=bucket[4]", "double takes identity"),
        ("paid=truncate[1]", "boolean takes identity"),
        ("day=hours", "date takes identity, bucket[N], year, month or day"),
        ("day=truncate[3]", "date takes identity, bucket[N], year, month or day"),
        ("local_ts=truncate[3]", "timestamp_ntz takes identity, bucket[N], year, month, day or hour"),
        ("tags=identity", "no transform fits array<string>"),
        ("place=identity", "no transform fits struct<city:string,at:timestamp>"),
        ("tags=explode", NONE.format("'explode'")),
        ("customer_id=bukcet[8]", NONE.format("'bukcet[8]'")),
        ("order_ts=date_trunc('day', order_ts)", NONE.format("\"date_trunc('day', order_ts)\"")),
        ("customer_id=customer_id % 8", NONE.format("'customer_id % 8'")),
        ("customer_id=bucket(8)", NONE.format("'bucket(8)'")),
        ("customer_id=void", NONE.format("'void'")),
        ("customer_id=", NONE.format("''")),
        ("customer_id=bucket[8", NONE.format("'bucket[8'")),
        ("customer_id=identitys", NONE.format("'identitys'")),
        ("customer_id=bucket", "bucket[N] needs a number"),
        ("region=truncate", "truncate[W] needs a width"),
        ("customer_id=bucket[0]", "N of bucket[N] is a number from 1 to 2147483647, not '0'"),
        ("customer_id=bucket[-8]", "not '-8'"),
        ("customer_id=bucket[2147483648]", "not '2147483648'"),
        ("region=truncate[]", "W of truncate[W] is a number from 1 to 2147483647, not ''"),
        ("region=truncate[2.5]", "not '2.5'"),
        ("region=truncate[٣]", "not '٣'"),
        ("order_ts=day[2]", "day takes no number"),
        ("order_ts=days, order_ts=hours", "order_ts=hour: each hour lies in one day, keep it or order_ts=day"),
        ("order_ts=months, ORDER_TS=year", "order_ts=month: each month lies in one year, keep it or order_ts=year"),
        ("order_ts=days, order_ts=day", "order_ts=day: given twice, leave one out"),
        ("order_ts", "'order_ts' has not the form column=transform"),
        ("order_ts=days,", "'' has not the form column=transform"),
        ("=days", "'=days' has not the form column=transform"),
    ],
)
def test_one_that_makes_none_is_told_with_what_would_do(told: PartitionMappings, problem: str) -> None:
    (found,) = problems(told)
    assert found.endswith(problem)


def test_all_are_told_at_once() -> None:
    found = problems({"ordr_ts": "days", "customer_id": ["bucket[8]", "hours"], "tags": "explode"})
    assert [problem.partition(":")[0] for problem in found] == ["ordr_ts=days", "customer_id=hours", "tags=explode"]


def test_a_column_that_is_the_only_one_is_just_left_out() -> None:
    with pytest.raises(InvalidMappings, match=r"leave it out$"):
        parse_partition_fields("day=day", {("day",): "date"}, ["day"])


def test_columns_that_differ_in_case_alone_are_named_as_they_are() -> None:
    columns: dict[ColumnPath, str] = {("At",): "date", ("AT",): "date"}
    assert [field.sql for field in parse_partition_fields("At=day", columns)] == ["days(`At`)"]
    with pytest.raises(InvalidMappings, match="no such column"):
        parse_partition_fields("at=day", columns)


def test_the_page_names_what_fits() -> None:
    told = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (`.*)\|$", PAGE.read_text(), re.MULTILINE)
    found = {kind: re.findall(r"`([^`]+)`", takes) for kinds, takes in told for kind in re.findall(r"`(\w+)`", kinds)}
    known = {kind: {list_choices([name]) for name in names} for kind, names in TRANSFORMS_BY_TYPE.items()}
    assert {kind: set(takes) for kind, takes in found.items() if kind in known} == known
