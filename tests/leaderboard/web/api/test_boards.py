"""The boards of the API: standings and exports."""

from __future__ import annotations

from .calls import ENV, both_databases, get, published


@both_databases
def test_standings_are_sorted_filtered_and_paged(client, engine, ada):
    published(client, engine, ada, name="a", comp=10, method="sm")
    published(client, engine, ada, name="b", comp=100_000, method="ens", seeds=(0, 1, 7))

    def names(query: str) -> str:
        return "".join(line["name"] for line in get(client, f"/boards/{ENV}/0.1?{query}").json()["lines"])

    assert names("sort=comp") == "ab"
    assert names("sort=comp&descending=true") == "ba"
    assert names("sort=comp&limit=1&offset=1") == "b"
    assert names("method=sm") == "a"
    assert names("budget_class=7") == "b"
    assert names("waiting_time=3") == ""
    (board,) = get(client, "/boards").json()
    assert (board["env_id"], board["submissions"], board["methods"]) == (ENV, 2, ["ens", "sm"])
    assert get(client, "/boards/Nothing-v0/9.9").json() == {"lines": [], "total": 0, "damaged": []}


def test_a_board_is_downloaded_as_a_file(client, engine, ada):
    import io

    import pyarrow.parquet

    assert get(client, f"/boards/{ENV}/0.1/export").status_code == 404
    published(client, engine, ada, name="=1+1", comp=10**20)
    response = get(client, f"/boards/{ENV}/0.1/export")
    assert response.headers["content-disposition"] == f'attachment; filename="{ENV}-0.1.csv"'
    assert "'=1+1" in response.text
    runs = get(client, f"/boards/{ENV}/0.1/export?format=json&runs=true").json()
    assert [run["comp"] for run in runs] == [20 * (10**20 + seed + 7) for seed in (0, 1, 2)]
    content = get(client, f"/boards/{ENV}/0.1/export?format=parquet").content
    assert pyarrow.parquet.read_table(io.BytesIO(content)).num_rows == 1
