//go:build !linux

package process

import "syscall"

// attributes leave the terminal's interrupt to us. A child survives us where it has no parent-death signal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
