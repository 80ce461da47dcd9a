package figures

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Usage is what a process has taken so far, as the kernel accounts for it.
type Usage struct {
	CPU      time.Duration // of all its threads, in user and kernel mode; a multiple of 10 ms
	Resident int64         // bytes that are in memory now
}

// UsageOf reads what the process of this number has taken.
func UsageOf(pid int) (Usage, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Usage{}, err
	}
	stat, err := process.Stat()
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	return Usage{CPU: time.Duration(stat.CPUTime() * float64(time.Second)), Resident: int64(stat.ResidentMemory())}, nil
}
