package figures

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// UsageOfGroup reads what a process group has taken: CPU also by those of it that have ended and
// were waited for, memory by those that run. A group has no Peak and no Mapped here.
func UsageOfGroup(leader int) (Usage, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process group %d: %w", leader, err)
	}
	var sum Usage
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended since
		}
		group, usage, err := groupIn(string(stat))
		if err != nil {
			return Usage{}, fmt.Errorf("read the usage of process %s: %w", entry.Name(), err)
		}
		if group == leader {
			sum.CPU += usage.CPU
			sum.Resident += usage.Resident
		}
	}
	return sum, nil
}

// groupIn finds the group and the figures in the text of stat.
func groupIn(stat string) (group int, u Usage, err error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const pgrp, user, waitedSystem, rss = 2, 11, 14, 21 // of those behind the name
	if len(fields) <= rss {
		return 0, Usage{}, fmt.Errorf("stat has %d fields behind the name", len(fields))
	}
	if group, err = strconv.Atoi(fields[pgrp]); err != nil {
		return 0, Usage{}, err
	}
	for _, field := range fields[user : waitedSystem+1] { // its own two, and the two of those it waited for
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, Usage{}, err
		}
		u.CPU += time.Duration(ticks) * tick
	}
	pages, err := strconv.ParseInt(fields[rss], 10, 64)
	u.Resident = pages * int64(os.Getpagesize())
	return group, u, err
}
