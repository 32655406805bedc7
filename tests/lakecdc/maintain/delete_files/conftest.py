"""The shared checks say what differs when they fail."""

import pytest

pytest.register_assert_rewrite("tests.lakecdc.maintain.delete_files.support")
