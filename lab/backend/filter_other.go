//go:build !linux

package backend

import (
	"errors"
	"syscall"
)

// filter can drop no packets without socket filters, which only Linux has.
func filter(_ syscall.Conn, dropAll bool) error {
	if dropAll {
		return errors.New("a silent backend needs Linux")
	}
	return nil
}
