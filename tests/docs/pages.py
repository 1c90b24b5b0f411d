"""The pages whose words are kept: all but the results, which list commands that took hours."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = sorted(
    path.relative_to(ROOT)
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if not path.is_relative_to(ROOT / "docs" / "results")
)
