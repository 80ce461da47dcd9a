package backend

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// filter attaches a socket filter that drops every packet, or takes it away. That needs
// no privilege, and to the other side it looks like a machine without power. A stopped
// process would not do: the kernel goes on accepting connections for it. Nor would the
// removal of its address: connecting then fails at once.
func filter(s syscall.Conn, dropAll bool) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach the socket: %w", err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		if !dropAll {
			setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
			if errors.Is(setErr, unix.ENOENT) {
				setErr = nil // there was none
			}
			return
		}
		drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0} // keep 0 bytes
		setErr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if err = errors.Join(err, setErr); err != nil {
		return fmt.Errorf("filter a socket's packets: %w", err)
	}
	return nil
}
