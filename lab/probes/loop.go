package probes

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// bare connects to each target and hangs up, one after the other at the prober's mean pace, and
// notes what a thousand cost. It closes with a reset too: else the kernel keeps each for a minute.
func bare(keys []probe.Key, long time.Duration, costs *[]time.Duration) func() error {
	return func() error {
		before, err := figures.UsageOf(os.Getpid())
		if err != nil {
			return err
		}
		pause := probe.DefaultInterval * 95 / 100 / time.Duration(len(keys))
		began, n := time.Now(), 0
		for ; time.Since(began) < long; n++ {
			if ahead := time.Until(began.Add(time.Duration(n) * pause)); ahead > time.Millisecond {
				time.Sleep(ahead) // the pace, not a wait for anything
			}
			key := keys[n%len(keys)]
			conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: key.Address.AsSlice(), Port: int(key.Port)})
			if err != nil {
				return fmt.Errorf("connect to %s: %w", key.Address, err)
			}
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
		after, err := figures.UsageOf(os.Getpid())
		*costs = append(*costs, (after.CPU-before.CPU)*1000/time.Duration(n))
		return err
	}
}
