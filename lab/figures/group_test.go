package figures

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestAGroupIsChargedWithThoseOfItThatHaveEnded(t *testing.T) {
	stat := "42 (a (b) c) S 1 7 7 0 -1 4194560 11 12 13 14 3 4 5 6 20 0 1 0 99 4096000 3 18446744073709551615 1 1"
	group, usage, err := groupIn(stat)
	if err != nil || group != 7 {
		t.Fatal(group, err)
	}
	if want := (3 + 4 + 5 + 6) * 10 * time.Millisecond; usage.CPU != want {
		t.Errorf("CPU is %s, want %s", usage.CPU, want)
	}
	if usage.Resident%3 != 0 || usage.Resident == 0 {
		t.Errorf("resident are %d bytes, want three pages", usage.Resident)
	}
}

func TestAChildsWorkIsItsGroupsAndNotItsParents(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo; read never`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait() // it reads nothing, and says so
	}()
	if _, err := said.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	all, err := UsageOfGroup(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := UsageOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if all.CPU <= alone.CPU {
		t.Errorf("the group has taken %s, and its leader alone %s", all.CPU, alone.CPU)
	}
}
