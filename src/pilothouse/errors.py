# SPDX-License-Identifier: Apache-2.0
"""Every error Pilothouse raises on purpose, in one tree.

    PilothouseError
    ├── UserError              a person must act: a setting, a file, a flag
    │   ├── InvalidSetting
    │   ├── UnknownName
    │   ├── NameTaken
    │   ├── MissingFile
    │   ├── PortInUse
    │   ├── LabUnavailable     this machine or what is on it cannot hold a lab
    │   ├── MissingExtra       a library of an optional extra is not installed
    │   ├── TraceUnreadable    a trace file is not what its reader expects
    │   ├── ArtifactBroken     an artefact is incomplete, altered or of another schema
    │   └── JournalMismatch    the journal belongs to another run
    ├── JournalError           the record cannot be written or trusted
    │   ├── JournalUnwritable  full, read-only or broken disk: nothing may act
    │   ├── JournalCorrupt     the chain does not verify
    │   └── JournalTooNew      written by a newer schema
    ├── BackendError           the cluster or simulator did not answer as agreed
    │   ├── ClusterUnreachable no answer, or not from whom we expected
    │   ├── NotPermitted       the API server knows us and says no
    │   └── LabFailed          a part of the lab did not come up or did not go away
    └── InternalError          a bug of ours

Messages say what is wrong, what was given, and what is accepted or what to do.
"""

from __future__ import annotations


class PilothouseError(Exception):
    """The root; the command line prints its message as one line and exits non-zero."""

    exit_code = 1


class UserError(PilothouseError):
    """Something a person gave cannot be used."""

    exit_code = 2


class InvalidSetting(UserError):
    """A setting is unknown, of the wrong type or out of range."""


class UnknownName(UserError):
    """A name is not among the known ones; the message lists them."""

    @classmethod
    def among(cls, what: str, given: str, known: list[str] | tuple[str, ...]) -> UnknownName:
        """Say which name was meant, when one is close."""
        import difflib

        close = difflib.get_close_matches(given, known, n=1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        return cls(f'Unknown {what} "{given}".{hint} Available: {", ".join(sorted(known))}.')


class NameTaken(UserError):
    """A name already belongs to something else; the message says to what."""


class MissingFile(UserError):
    """A file that was named does not exist or cannot be read."""


class PortInUse(UserError):
    """The address to serve on is taken."""


class LabUnavailable(UserError):
    """This machine cannot hold a lab, or holds something that is in its way."""


class MissingExtra(UserError):
    """A library of an optional extra is not installed; the message says how to get it."""


class TraceUnreadable(UserError):
    """A trace file cannot be read as what it should be; the message names file and row."""


class ArtifactBroken(UserError):
    """An artefact is missing a part, was altered, or follows a schema this build does not know."""


class JournalMismatch(UserError):
    """The journal was started with another seed, scenario or cluster."""


class JournalError(PilothouseError):
    """The record cannot be written or cannot be trusted."""

    exit_code = 3


class JournalUnwritable(JournalError):
    """No durable record is possible, so nothing may act."""


class JournalCorrupt(JournalError):
    """A stored value, link or order does not match the chain."""


class JournalTooNew(JournalError):
    """The file was written by a newer Pilothouse."""


class BackendError(PilothouseError):
    """The cluster or the simulator did not answer as agreed."""

    exit_code = 4


class ClusterUnreachable(BackendError):
    """The API server gave no answer, or one that cannot be trusted."""


class NotPermitted(BackendError):
    """The API server knows us and says no; the message names the rule to add."""


class LabFailed(BackendError):
    """A part of the lab could not be built, did not come up or did not go away."""


class InternalError(PilothouseError):
    """A bug of ours; the loop stops acting."""

    exit_code = 70
