"""The comparison of shown and printed output: what it lets pass, and what it does not."""

import pytest
from fences import agrees, code_blocks

PAGE = """Text.

1. A step:

   ```python
   print(1)
   ```

   ```text
   1
   ```

```bash
ls
```

Not its output:

```text
a
```
"""


def test_a_text_block_right_after_code_is_its_output():
    python, bash = code_blocks(PAGE)
    assert (python.language, python.code, python.shown, python.line) == (
        "python",
        "print(1)\n",
        "1\n",
        6,
    )
    assert (bash.language, bash.code, bash.shown) == ("bash", "ls\n", None)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("micro-F1 0.66\n", "micro-F1  0.67\n"),
        ("3 rows ... done", "3 rows in 4 s: done"),
        ("a\n...\nz", "a\nb\nc\nz"),
        ("a\n...\nz", "a\nz"),
        ("(2, 14) -0.50", "(2, 14) -0.52"),
        ("731.5", "730.0"),
        ("| **0.65** | *0.64* |", "| *0.64* | **0.65** |"),
    ],
)
def test_what_agrees(shown, printed):
    assert agrees(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("micro-F1 0.66", "micro-F1 0.16"),
        ("3 rows", "4 rows"),
        ("Class1", "Class2"),
        ("a", "a b"),
        ("0.5", "1"),
        ("0.5 ...", "0.9 and more"),
    ],
)
def test_what_does_not(shown, printed):
    assert not agrees(shown, printed)
