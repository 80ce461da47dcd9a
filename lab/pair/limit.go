package pair

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Resource is what the kernel limits a process in.
type Resource int

// The resources.
const (
	OpenFiles    Resource = unix.RLIMIT_NOFILE // the highest file descriptor and one
	AddressSpace Resource = unix.RLIMIT_AS     // bytes, most of which a Go program only reserves
	FileSize     Resource = unix.RLIMIT_FSIZE  // bytes of any file that it writes: its log
)

// Limit sets a limit of the running process, and returns what sets it back; that is safe when
// the process has ended.
func (h *Half) Limit(what Resource, to uint64) (back func() error, err error) {
	pid := h.PID()
	if pid == 0 {
		return nil, fmt.Errorf("limit %s: it does not run", h.Name)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, int(what), nil, &before); err != nil {
		return nil, fmt.Errorf("ask for a limit of %s: %w", h.Name, err)
	}
	if err := unix.Prlimit(pid, int(what), &unix.Rlimit{Cur: min(to, before.Max), Max: before.Max}, nil); err != nil {
		return nil, fmt.Errorf("limit %s: %w", h.Name, err)
	}
	return func() error {
		if h.PID() != pid || !h.Running() {
			return nil
		}
		return unix.Prlimit(pid, int(what), &before, nil)
	}, nil
}

// Descriptors is the highest file descriptor that the process has open, and one: a limit of so
// many leaves it those below that are free, and no more.
func (h *Half) Descriptors() (uint64, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.PID()))
	if err != nil {
		return 0, fmt.Errorf("look at the files of %s: %w", h.Name, err)
	}
	var highest uint64
	for _, entry := range open {
		if n, err := strconv.ParseUint(entry.Name(), 10, 64); err == nil {
			highest = max(highest, n+1)
		}
	}
	return highest, nil
}

// Memory reads a line of /proc/…/status, in bytes: VmRSS is what is used, VmHWM the most that
// ever was, VmSize the address space.
func (h *Half) Memory(line string) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID()))
	if err != nil {
		return 0, fmt.Errorf("look at the memory of %s: %w", h.Name, err)
	}
	for one := range bytes.Lines(raw) {
		if value, ok := bytes.CutPrefix(one, []byte(line+":")); ok {
			kib, err := strconv.ParseUint(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", h.Name, line)
}
