package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Socket is a TCP socket by its ports.
type Socket struct{ Local, Remote int }

// Sockets are those of a process that are in a state, as the kernel writes it.
func (s *Setup) Sockets(pid int, state string) []Socket {
	s.T.Helper()
	base := filepath.Join("/proc", strconv.Itoa(pid))
	files, err := os.ReadDir(filepath.Join(base, "fd"))
	s.Must(err)
	own := map[string]bool{}
	for _, file := range files {
		if to, err := os.Readlink(filepath.Join(base, "fd", file.Name())); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	port := func(address string) int {
		_, hex, _ := strings.Cut(address, ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		s.Must(err)
		return int(port)
	}
	var all []Socket
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(base, "net", table))
		s.Must(err)
		for line := range strings.Lines(string(text)) {
			cells := strings.Fields(line)
			if len(cells) >= 10 && cells[3] == state && own[cells[9]] {
				all = append(all, Socket{port(cells[1]), port(cells[2])})
			}
		}
	}
	return all
}
