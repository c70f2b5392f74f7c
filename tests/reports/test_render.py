"""Reports show every string as it is, and nothing in one becomes markup."""

from __future__ import annotations

import html.parser
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from klaud.reports import model, page, publish, render

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = '<!-- x --> <script>alert(1)</script> @maintainer [a](http://x) ![i](y) `c` | cell\nnew **b** # h & "q"'


def report(text: str, rows: int = 1) -> model.Report:
    table = model.Table(columns=("a", "b"), rows=((text, "1"),) * rows, title=text)
    return model.Report(
        title=text, sections=(model.Section(title=text, sentences=(text,), facts=((text, text),), tables=(table,)),)
    )


def test_markdown_neither_mentions_nor_hides_nor_marks_up() -> None:
    out = render.markdown(report(HOSTILE))
    assert "@" not in out
    assert "<" not in out
    assert "](" not in out
    assert "`" not in out
    assert all(line.count("|") in (0, 3) for line in out.splitlines())


@given(st.text(max_size=200))
def test_escaped_markdown_shows_the_same_text(text: str) -> None:
    assert html.unescape(render.escape(text)) == text.replace("\r", " ").replace("\n", " ")


@given(st.text(max_size=200))
def test_the_page_holds_only_its_own_tags(text: str) -> None:
    seen: set[str] = set()

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            del attrs
            seen.add(tag)

    Parser().feed(page.page(report(text + HOSTILE)))
    assert seen <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "section", "p", "dl", "dt", "dd", "table", "caption",
        "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip


def test_L74_a_summary_is_cut_by_bytes_at_a_lines_end_and_says_so() -> None:  # noqa: N802 - the oddity's id
    whole = render.markdown(report("ü" * 300, rows=2000), limit_bytes=10**9)
    short = render.markdown(report("ü" * 300, rows=2000))
    assert len(whole.encode()) > render.SUMMARY_LIMIT_BYTES >= len(short.encode())
    assert short.endswith(render.CUT_NOTE)
    assert whole.startswith(short.removesuffix(render.CUT_NOTE))


@given(st.text(max_size=400), st.integers(60, 400))
def test_a_cut_fits_and_keeps_whole_lines(text: str, limit: int) -> None:
    short = render.cut(text, limit)
    assert len(short.encode()) <= limit
    assert short == text or text.startswith(short.removesuffix(render.CUT_NOTE))


def test_the_step_summary_as_a_whole_stays_below_the_limit(tmp_path: Path) -> None:
    environ = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    for _ in range(4):
        assert publish.step_summary(report("x" * 1000, rows=400), environ)
    size = (tmp_path / "summary").stat().st_size
    assert render.SUMMARY_LIMIT_BYTES / 2 < size <= render.SUMMARY_LIMIT_BYTES
    assert not publish.step_summary(report("x"), {})


@given(st.lists(st.tuples(st.text(max_size=120), st.text(max_size=120)), max_size=6), st.integers(20, 120))
def test_text_tables_fit_the_width(rows: list[tuple[str, str]], width: int) -> None:
    table = model.Table(columns=("a", "b"), rows=tuple(rows))
    out = render.text(model.Report(title="t", sections=(model.Section(title="s", tables=(table,)),)), width=width)
    assert all(len(line) <= width + 2 for line in out.splitlines())


def test_files_are_written_into_a_new_folder(tmp_path: Path) -> None:
    markdown, web = publish.files(report("x"), tmp_path / "new", "wave")
    assert markdown.read_text(encoding="utf-8").startswith("# x")
    assert web.read_text(encoding="utf-8").startswith("<!doctype html>")
