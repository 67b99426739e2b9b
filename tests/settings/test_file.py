# SPDX-License-Identifier: Apache-2.0
"""The settings file: what it accepts, and the one line it answers with otherwise."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.domain import Mode
from pilothouse.errors import InvalidSetting, MissingFile, UserError
from pilothouse.settings import GuardSettings, ModeSettings, RunSettings, Settings, file

HEAD = "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\n"


def parsed(body: str) -> Settings:
    return file.parse(HEAD + body, name="config.yaml")


def refusal(body: str) -> str:
    with pytest.raises(InvalidSetting) as caught:
        parsed(body)
    return str(caught.value)


def test_example_reads_back_as_the_defaults() -> None:
    assert file.parse(file.example(), name="example") == Settings()


def test_written_settings_read_back_the_same() -> None:
    settings = Settings(
        run=RunSettings(cluster="harbor-1", seed=7, interval_wall_seconds=0.00001),
        modes=ModeSettings(default=Mode.OFF, agents={"safety/shop": Mode.SHADOW}),
    )

    assert file.parse(file.to_yaml(settings), name="written") == settings


def test_every_field_has_its_docstring_in_the_example() -> None:
    example = " ".join(file.example().replace("#", " ").split())
    fields = [field for section in file.sections() for field in section.fields]

    assert [field.path for field in fields if not field.doc] == []
    assert [field.path for field in fields if field.doc not in example] == []


def test_every_section_has_its_docstring_in_the_example() -> None:
    example = " ".join(file.example().replace("#", " ").split())

    assert [s.name for s in file.sections() if " ".join(s.doc.split()) not in example] == []


def test_a_setting_left_out_keeps_its_default() -> None:
    assert parsed("run:\n  seed: 3\n") == Settings(run=RunSettings(seed=3))


def test_a_section_with_everything_commented_out_keeps_its_defaults() -> None:
    assert parsed("run:\n  # seed: 3\n") == Settings()


def test_a_mapping_changes_only_the_keys_it_names() -> None:
    ttl = parsed("guard:\n  ttl_seconds: {dvfs: 60}\n").guard.ttl_seconds

    assert ttl == {**GuardSettings().ttl_seconds, "dvfs": 60}


def test_a_mode_may_be_written_off_without_quotes() -> None:
    modes = parsed("modes: {default: off, agents: {safety/shop: advise}}\n").modes

    assert modes == ModeSettings(default=Mode.OFF, agents={"safety/shop": Mode.ADVISE})


def test_a_whole_number_is_accepted_where_a_number_is_wanted() -> None:
    seconds = parsed("run: {interval_wall_seconds: 0}\n").run.interval_wall_seconds

    assert seconds == 0.0
    assert type(seconds) is float


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())

    assert file.load(path) == Settings()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "safety:\n  replicate_risk: 1.4\n",
            "safety.replicate_risk must be a number between 0 and 1, but got 1.4 (config.yaml:4).",
        ),
        (
            "run:\n  sead: 1\n",
            'Unknown setting "run.sead". Did you mean "run.seed"? Available: cluster, scenario, '
            "seed, cycle_seconds, interval_wall_seconds (config.yaml:4).",
        ),
        (
            "guard:\n  per_agnet: 1\n",
            'Unknown setting "guard.per_agnet". Did you mean "guard.per_agent"? (config.yaml:4).',
        ),
        (
            "run: {seed: true}\n",
            "run.seed must be a whole number between 0 and 2147483647, but got true "
            "(config.yaml:3).",
        ),
        (
            "run: {seed: 1.5}\n",
            "run.seed must be a whole number between 0 and 2147483647, but got 1.5 "
            "(config.yaml:3).",
        ),
        (
            'run: {seed: "3"}\n',
            'run.seed must be a whole number between 0 and 2147483647, but got "3" '
            "(config.yaml:3).",
        ),
        (
            "run: {seed: 1:30}\n",
            "run.seed must be a whole number between 0 and 2147483647, but got "
            '"1:30" (config.yaml:3).',
        ),
        (
            "run:\n  seed:\n",
            "run.seed must be a whole number between 0 and 2147483647, but got nothing "
            "(config.yaml:4).",
        ),
        (
            "run: {seed: [1, 2]}\n",
            "run.seed must be a whole number between 0 and 2147483647, but got something nested "
            "or tagged (config.yaml:3).",
        ),
        (
            "run: {cluster: 12}\n",
            "run.cluster must be one word of lower-case letters, digits and dashes, but got 12. "
            "Quote it (config.yaml:3).",
        ),
        (
            "run: {cluster: a/b}\n",
            "run.cluster must be one word of lower-case letters, digits and dashes, but got "
            '"a/b" (config.yaml:3).',
        ),
        (
            "score: {forks: yes}\n",
            'score.forks must be true or false, but got "yes" (config.yaml:3).',
        ),
        (
            "referee: {preemption: none}\n",
            'referee.preemption must be one of cluster, overlap, but got "none" (config.yaml:3).',
        ),
        (
            "modes: {default: on}\n",
            'modes.default must be one of off, shadow, advise, enforce, but got "on" '
            "(config.yaml:3).",
        ),
        (
            "modes: {agents: {safty: off}}\n",
            'Unknown agent "modes.agents.safty". Did you mean "safety"? Available: safety, '
            "efficiency, admission (config.yaml:3).",
        ),
        (
            "guard: {ttl_seconds: {dvfs: 0}}\n",
            "guard.ttl_seconds.dvfs must be a whole number between 1 and 31622400, but got 0 "
            "(config.yaml:3).",
        ),
        (
            "guard: {ttl_seconds: {dvsf: 9}}\n",
            'Unknown setting "guard.ttl_seconds.dvsf". Did you mean "guard.ttl_seconds.dvfs"? '
            "Available: replicate, migrate, throttle, resource_cap, memory_balloon, power_state, "
            "dvfs, admission (config.yaml:3).",
        ),
        (
            "score: {weights: {safety: .nan}}\n",
            "score.weights.safety must be a number between 0 and 100, but got nan (config.yaml:3).",
        ),
        (
            "run: 3\n",
            "run must be a mapping (key: value), but got 3 (config.yaml:3).",
        ),
        (
            "run:\n  seed: 1\n  seed: 2\n",
            "run.seed is set twice, first in line 4. Keep one (config.yaml:5).",
        ),
        (
            "run: {}\nrun: {}\n",
            "run is set twice, first in line 3. Keep one (config.yaml:4).",
        ),
        (
            "run: {seed: !!python/object:os.system 1}\n",
            "run.seed must be a whole number between 0 and 2147483647, but got something nested "
            "or tagged (config.yaml:3).",
        ),
        (
            "run: {seed: 1\n",
            "The file is not valid YAML: expected ',' or '}', but got '<stream end>' "
            "(config.yaml:4).",
        ),
    ],
)
def test_refusal_says_what_was_given_and_what_is_accepted(body: str, sentence: str) -> None:
    assert refusal(body) == sentence


def test_a_newer_version_of_the_file_is_refused() -> None:
    with pytest.raises(InvalidSetting) as caught:
        file.parse("apiVersion: pilothouse.dev/v2\nkind: Configuration\n", name="c.yaml")

    assert str(caught.value) == (
        'apiVersion must be pilothouse.dev/v1alpha1, but got "pilothouse.dev/v2" (c.yaml:1).'
    )


def test_a_file_without_a_version_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"^apiVersion is missing"):
        file.parse("run: {seed: 1}\n", name="c.yaml")


def test_an_empty_file_says_how_to_write_one() -> None:
    with pytest.raises(InvalidSetting, match=r"is empty\. Write one .* pilothouse config init"):
        file.parse("# nothing yet\n", name="c.yaml")


def test_check_finds_every_problem_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "run: {seed: -1}\nserve: {port: 99999}\nextra: 1\n", encoding="utf-8")

    assert len(file.check(path)) == 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"nowhere\.yaml does not exist"):
        file.load(tmp_path / "nowhere.yaml")


def test_a_directory_is_not_a_settings_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="is a directory"):
        file.load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.touch(mode=0)

    with pytest.raises(MissingFile, match="Permission denied"):
        file.load(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\x00\x00",
        b"\x00" * 64,
        b"\xff\xfe\x00r\x00u",
        b"a: [" * 2_000,
        b"- " * 5_000,
        b"x" * (file.LARGEST_BYTES + 1),
        b"--- {}\n--- {}\n",
        b"? [a, b]\n: 1\n",
        b"a: &a [*a]\n",
        b"a: \xe2\x80\xa8b\n",
        b"%YAML 9.9\n---\n",
        b"run: {seed: " + b"9" * 10_000 + b"}\n",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_garbage_gives_one_clear_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "garbage.yaml"
    path.write_bytes(data)

    with pytest.raises(UserError) as caught:
        file.load(path)

    message = str(caught.value)
    assert "garbage.yaml" in message
    assert "\n" not in message
    assert len(message) < 400


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)

    with pytest.raises(UserError) as caught:
        file.load(path)

    assert str(caught.value).isprintable()


@given(
    st.dictionaries(
        st.sampled_from([f.path for s in file.sections() for f in s.fields]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
        max_size=3,
    )
)
def test_overrides_are_accepted_or_refused_in_one_line(overrides: dict[str, object]) -> None:
    settings, refusals = Settings(), []
    for path, value in overrides.items():
        try:
            settings = file.with_overrides(settings, {path: value})
        except InvalidSetting as refused:
            refusals.append(str(refused))

    assert all(refusal.isprintable() for refusal in refusals)
    assert file.parse(file.to_yaml(settings), name="again") == settings


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    changed = file.with_overrides(
        Settings(), {"run.seed": 3, "modes.agents.safety/shop": "shadow", "serve.port": 0}
    )

    defaults = Settings()
    assert changed == replace(
        defaults,
        run=replace(defaults.run, seed=3),
        modes=ModeSettings(agents={"safety/shop": Mode.SHADOW}),
        serve=replace(defaults.serve, port=0),
    )


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            "run.seed",
            -1,
            "run.seed must be a whole number between 0 and 2147483647, but got -1 (command line).",
        ),
        (
            "run.sed",
            1,
            'Unknown setting "run.sed". Did you mean "run.seed"? (command line).',
        ),
        (
            "run.seed.x",
            1,
            "run.seed has no parts, but got run.seed.x (command line).",
        ),
        (
            "modes.agents.pilot",
            "off",
            'Unknown agent "modes.agents.pilot". Available: safety, efficiency, admission '
            "(command line).",
        ),
    ],
)
def test_overrides_are_held_to_the_rules_of_the_file(
    path: str, value: object, sentence: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        file.with_overrides(Settings(), {path: value})

    assert str(caught.value) == sentence
