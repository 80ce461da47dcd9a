package netns

import (
	"time"

	"golang.org/x/sys/unix"
)

// pidfd holds on to a process that is not our child, so that its end can be waited for.
type pidfd int

func openPidfd(pid int) (pidfd, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	return pidfd(fd), err
}

// gone reports whether the process ended within the given time, and lets go of it.
func (p pidfd) gone(within time.Duration) bool {
	defer unix.Close(int(p))
	deadline := time.Now().Add(within)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if err != unix.EINTR {
			return n == 1
		}
	}
}
