package link

import "syscall"

// capByOpenFiles is how many unfinished handshakes there may be: a quarter of the files that this process may
// have open at most, so that the rest is left for peers that are known, and for what else it does.
func capByOpenFiles(most int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return most
	}
	return int(max(1, min(uint64(most), files.Cur/4)))
}
