package tinydisk

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slicefeed/slicefeed/lab/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

func TestADiskCanBeFilledToTheLastByte(t *testing.T) {
	const page = 4096
	disk, err := New(8 * page)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	path := disk.Path("a")
	if err := os.WriteFile(path, []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := disk.Fill(1); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), page+1)
	if err := os.WriteFile(disk.Path("b"), long, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a page and a byte on a disk with one page left: %v", err)
	}
	if got, err := os.ReadFile(disk.Path("b")); err != nil || len(got) != page {
		t.Errorf("of a file that did not fit there are %d bytes (%v), want the page that did", len(got), err)
	}
	if got, err := exec.Command("cat", path).Output(); err != nil || string(got) != "whole" {
		t.Errorf("another program reads %q: %v", got, err)
	}
	if err := disk.Free(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disk.Path("b"), long, 0o600); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
