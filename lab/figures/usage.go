package figures

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has taken so far, as the kernel accounts for it.
type Usage struct {
	CPU      time.Duration // of all its threads, in user and kernel mode; a multiple of 10 ms
	Resident int64         // bytes that are in memory now
}

// UsageOf reads what the process of this number has taken.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	usage, err := usageIn(string(stat), string(status))
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	return usage, nil
}

// tick is the unit of the times in /proc, whatever the kernel's own clock: USER_HZ is 100.
const tick = 10 * time.Millisecond

// usageIn finds the figures in the texts of stat and status, whose forms proc(5) describes.
func usageIn(stat, status string) (u Usage, err error) {
	// The program's name is in brackets, and may have brackets and spaces in it.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const user, system = 11, 12 // of those behind the name
	if len(fields) <= system {
		return Usage{}, fmt.Errorf("stat has %d fields behind the name", len(fields))
	}
	for _, field := range []string{fields[user], fields[system]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Usage{}, err
		}
		u.CPU += time.Duration(ticks) * tick
	}
	u.Resident, err = kilobytes(status, "VmRSS:")
	return u, err
}

func kilobytes(status, name string) (bytes int64, err error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("status has no line %s", name)
}
