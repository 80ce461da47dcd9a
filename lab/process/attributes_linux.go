package process

import "syscall"

// attributes have a child die with us, and leave the terminal's interrupt to us: we end the children in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
