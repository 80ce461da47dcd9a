package link

import "syscall"

// capByOpenFiles caps the number of unfinished handshakes at a quarter of the files that this process
// may have open. The rest is for identified peers and everything else.
func capByOpenFiles(handshakes int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return handshakes
	}
	return int(max(1, min(uint64(handshakes), files.Cur/4)))
}
