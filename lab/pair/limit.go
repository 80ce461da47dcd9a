package pair

import (
	"fmt"

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
func (h *Component) Limit(what Resource, to uint64) (back func() error, err error) {
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
