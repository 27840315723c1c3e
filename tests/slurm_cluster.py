"""A Slurm cluster on this machine: the real daemons on loopback, up in two seconds, without accounting;
with it, slurmdbd and a MariaDB of its own, in four.

Each node is a slurmd in namespaces of its own, so that it has a name and process ids of its own, and SIGKILL
of its first process is a crash.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

from .ports import free_port
from .waiting import wait_until

PROGRAMS = ("slurmctld", "slurmd", "munged", "unshare")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "sacct")

# Low-priority jobs of `main` are requeued for those of `urgent`; what is submitted to `closed` waits; `short`
# has a time limit that is soon reached; `nodes` of gpu have GPUs that are only counted.
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
{accounting}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0,defer_batch
KillWait=15
MessageTimeout=20
SlurmctldTimeout=30
SlurmdTimeout={node_timeout}
ReturnToService=2
MinJobAge={min_job_age}
InactiveLimit=0
GresTypes=gpu
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
MaxArraySize={max_array_size}
MaxJobCount={max_jobs}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=1:00:00 DefMemPerCPU=100 PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=1:00:00 DefMemPerCPU=100 PriorityTier=10
PartitionName=closed Nodes=ALL MaxTime=1:00:00 DefMemPerCPU=100 State=DOWN
"""
NO_ACCOUNTING = """\
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none"""
# What a job uses is looked at each second, as memory limits without cgroups need it.
ACCOUNTING = """\
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill,UsePss
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageEnforce=associations,limits,qos
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge/sock"""
SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""
# Without grants nobody needs a password, and what makes the tables for them: on loopback, while a test lasts.
DATABASE = (
    *("mariadbd", "--no-defaults", "--skip-grant-tables", "--user=root", "--bind-address=127.0.0.1"),
    *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"),
)
# Which limits an association inherits slurmdbd has a procedure for: the database has no place for those by
# itself, and then each limit is 0.
PROCEDURES = ("/usr/share/mysql/mysql_system_tables.sql", "CREATE TABLE IF NOT EXISTS proc ")
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Sockets=1 "
    "CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=8000 Gres=gpu:{gpus} State=UNKNOWN"
)


def missing(*, accounting: bool = False) -> str:
    """Why there can be no cluster here; empty where there can be."""
    programs = (*PROGRAMS, *(ACCOUNTING_PROGRAMS if accounting else ()))
    if absent := [name for name in programs if shutil.which(name, path=_path()) is None]:
        return f"{', '.join(absent)} not installed"
    if os.geteuid() != 0:
        return "slurmd needs root"
    done = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


GPUS = 2
NAMESPACES = ("-u", "-p", "-m", "-f", "--mount-proc")


class SlurmCluster:
    """A controller and its nodes. `environment` is what makes sbatch and its like speak to it."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        cpus: int = 2,
        max_array_size: int = 1001,
        max_jobs: int = 10000,
        accounting: bool = False,
        node_timeout: int = 10,
    ) -> None:
        """`node_timeout`: seconds after which a node that does not answer is lost."""
        self.folder = folder
        self.names = [f"node{number}" for number in range(1, nodes + 1)]
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        for name in ("munge", "state"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        key = folder / "munge/key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        lines = [NODE.format(name=name, port=free_port(), cpus=cpus, gpus=GPUS) for name in self.names]
        self._database = free_port() if accounting else 0
        port = free_port()
        if accounting:
            (folder / "database").mkdir()
            facts = {"host": socket.gethostname(), "folder": folder, "port": port, "database": self._database}
            (folder / "slurmdbd.conf").touch(0o600)
            (folder / "slurmdbd.conf").write_text(SLURMDBD.format(**facts))
        conf = CONF.format(
            host=socket.gethostname(),
            port=free_port(),
            folder=folder,
            nodes="\n".join(lines),
            max_array_size=max_array_size,
            max_jobs=max_jobs,
            node_timeout=node_timeout,
            min_job_age=2 if accounting else 300,
            accounting=ACCOUNTING.format(port=port, folder=folder) if accounting else NO_ACCOUNTING,
        )
        (folder / "slurm.conf").write_text(conf)
        for name in self.names:
            for number in range(GPUS):  # stands in for /dev/nvidia0: a null device
                os.mknod(folder / f"{name}-gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        gres = [f"NodeName={name} Name=gpu File={folder}/{name}-gpu[0-{GPUS - 1}]\n" for name in self.names]
        (folder / "gres.conf").write_text("".join(gres))
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}

    def start(self) -> None:
        self.start_munge()
        if self._database:
            self._start_database()
            self.start_accounting()
            # A controller that finds its cluster unknown registers it, and its accounts follow.
            self.ask("sacctmgr", "-i", "add", "cluster", "test")
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        wait_until(lambda: self.idle() == self.names, "the cluster")

    def start_munge(self) -> None:
        folder = self.folder / "munge"
        files = {"key": "key", "socket": "sock", "pid": "pid", "log": "log", "seed": "seed"}
        places = [
            f"--{option}{'' if option == 'socket' else '-file'}={folder / file}"
            for option, file in files.items()
        ]
        self.munge = self._daemon("munged", "--foreground", "--num-threads=2", "--force", *places)
        wait_until(lambda: _listens(folder / "sock"), "munged")

    def _start_database(self) -> None:
        folder = self.folder
        tables, begin = PROCEDURES
        (table,) = [line for line in Path(tables).read_text().splitlines() if line.startswith(begin)]
        (folder / "first.sql").write_text(f"CREATE DATABASE mysql;\nUSE mysql;\n{table}\n")
        places = [f"--datadir={folder}/database", f"--socket={folder}/database.sock"]
        places.append(f"--init-file={folder}/first.sql")
        self._daemon(*DATABASE, *places, f"--port={self._database}", f"--pid-file={folder}/database.pid")
        wait_until(lambda: _accepts(self._database), "mariadbd")

    def start_accounting(self) -> None:
        self.accounting = self._daemon("slurmdbd", "-D")
        wait_until(lambda: self.ask("sacctmgr", "-n", "show", "user") != "", "slurmdbd")

    def stop_accounting(self) -> None:
        self._end(self.accounting, signal.SIGKILL)

    def start_controller(self) -> None:
        self.controller = self._daemon("slurmctld", "-D")

    def stop_controller(self) -> None:
        """It saves what it knows: killed, it forgets the jobs of its last seconds, and ends them later."""
        self._end(self.controller, signal.SIGTERM)

    def stop_munge(self) -> None:
        self._end(self.munge, signal.SIGKILL)

    def start_node(self, name: str) -> None:
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        become = f"hostname {name} && exec slurmd -D -N {name}"
        self._nodes[name] = self._daemon("unshare", *NAMESPACES, "--kill-child", "sh", "-c", become)

    def crash(self, name: str) -> None:
        """All processes of a node are gone at once."""
        self._end(self._nodes.pop(name), signal.SIGKILL)

    def hide(self, folder: Path) -> None:
        """Have the nodes see another folder there, an empty one, until `show`."""
        self._on_nodes("mount", "-t", "tmpfs", "none", str(folder))

    def show(self, folder: Path) -> None:
        self._on_nodes("umount", str(folder))

    def _on_nodes(self, *command: str) -> None:
        for process in self._nodes.values():
            subprocess.run(["nsenter", "-m", "-t", str(process.pid), *command], check=True)

    def idle(self) -> list[str]:
        return self.ask("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N").split()

    def ask(self, *command: str) -> str:
        """Output of one of Slurm's programs, empty where it fails."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else ""

    def submit(self, *arguments: str, command: str = "sleep 600") -> str:
        """The id of a job of somebody else."""
        return self.ask("sbatch", "--parsable", "-o", "/dev/null", *arguments, "--wrap", command).strip()

    def jobs(self) -> dict[str, str]:
        """Job or array task -> its state, of all that Slurm still knows."""
        lines = self.ask("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)

    def stop(self) -> None:
        self.ask("scancel", "--quiet", "-u", "root")
        for process in [*self._nodes.values(), *reversed(self._started)]:
            self._end(process, signal.SIGKILL)

    def _daemon(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "daemons.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    @staticmethod
    def _end(process: subprocess.Popen[bytes], number: int) -> None:
        if process.poll() is None:
            process.send_signal(number)
        process.wait()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _path() -> str:
    """Daemons are in sbin, which not every PATH has."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
