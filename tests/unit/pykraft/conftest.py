"""A folder of somebody who calls pykraft."""

import pytest
from command_lines import NODE


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder without a cluster, with a node's configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYKRAFT_ADMIN", raising=False)
    monkeypatch.delenv("PYKRAFT_BOOTSTRAP", raising=False)
    monkeypatch.setenv("PYKRAFT_HOME", str(tmp_path / "home"))
    (tmp_path / "node.properties").write_text(NODE.format(data=tmp_path / "data"))
    dynamic = NODE.replace("quorum.voters=1@", "quorum.bootstrap.servers=")
    (tmp_path / "dynamic.properties").write_text(dynamic.format(data=tmp_path / "data"))
    broker = dynamic.replace("broker,controller", "broker")
    broker = broker.replace(",CONTROLLER://localhost:9093", "")
    (tmp_path / "broker.properties").write_text(broker.format(data=tmp_path / "data"))
    (tmp_path / "nodisk.properties").write_text(NODE.format(data="/proc/nope"))
    typo = NODE.format(data="d").replace("process.roles", "process.role")
    (tmp_path / "nul.properties").write_text(NODE.format(data="d\\u0000"))
    (tmp_path / "typo.properties").write_text(typo)
    (tmp_path / "bad.properties").write_text(NODE.format(data="d").replace("id=1", "id=one"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "file").write_text("")
    return tmp_path
