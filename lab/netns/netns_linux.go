// Package netns moves the running program into a user and network namespace of its own,
// where it can have any address it likes without being root. It promises the same
// arguments, standard streams and exit code; it refuses to go on without the namespace
// and says what the kernel would need.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// outsideEnv names the network namespace that the program came from. Whoever finds it
// set while in another namespace is inside already.
const outsideEnv = "SLICEFEED_NETNS_OUTSIDE"

// Inside reports whether the program runs in a namespace that Enter made, for itself or
// for a parent of it.
func Inside() bool {
	outside := os.Getenv(outsideEnv)
	here, err := current()
	return outside != "" && err == nil && here != outside
}

// Enter starts the program again inside a new user and network namespace, whose loopback
// interface is up and has the given addresses, and returns there. Outside it never
// returns nil: it waits for the program inside and exits with its exit code. Outside,
// signals are passed on, and when ctx ends the program inside is told to end (SIGTERM).
//
// Call it first thing in main: whatever was done before is done again inside. There is
// no network but the loopback interface inside, so downloads belong before it.
func Enter(ctx context.Context, addrs ...netip.Addr) error {
	return enter(ctx, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}, addrs)
}

// EnterMachine does as Enter does, for what needs all users, mounts and processes of its own, as containers do.
// Only root can. What is mounted inside is not seen outside, and every process inside ends with the program.
func EnterMachine(ctx context.Context, addrs ...netip.Addr) error {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if err := enter(ctx, attributes, addrs); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

func enter(ctx context.Context, attributes *syscall.SysProcAttr, addrs []netip.Addr) error {
	if !Inside() {
		code, err := runInside(ctx, attributes)
		if err != nil {
			return err
		}
		os.Exit(code)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring the loopback interface up: %w%s", err, advice())
	}
	for _, addr := range addrs {
		if err := AddAddr(addr); err != nil {
			return err
		}
	}
	return nil
}

// Main is the body of a TestMain whose tests need a namespace.
func Main(m interface{ Run() int }, addrs ...netip.Addr) {
	if err := Enter(context.Background(), addrs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// AddAddr gives the namespace an address, and returns when it can be reached. One that the
// namespace has already is no error.
func AddAddr(addr netip.Addr) error {
	if err := onLoopback("add", addr, netlink.AddrReplace); err != nil {
		return err
	}
	return reachable(addr)
}

// reachable waits for the route to an address of ours: the kernel adds that of an IPv6 one in
// its own time, so that it can be bound before it can be reached.
func reachable(addr netip.Addr) error {
	const within = 30 * time.Second
	// Asked again and again, since a subscription could begin after the route has come.
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		_, err := netlink.RouteGet(addr.AsSlice())
		if err == nil {
			return nil
		}
		if time.Since(start) > within {
			return fmt.Errorf("address %s was added, and cannot be reached %s later: %w", addr, within, err)
		}
	}
}

// DelAddr takes an address away: connecting to it fails at once from then on, and
// connections that use it fall silent.
func DelAddr(addr netip.Addr) error {
	return onLoopback("remove", addr, netlink.AddrDel)
}

func runInside(ctx context.Context, attributes *syscall.SysProcAttr) (int, error) {
	here, err := current()
	if err != nil {
		return 0, fmt.Errorf("find out the present network namespace: %w", err)
	}
	// The parent death signal is sent when the *thread* dies that made the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), outsideEnv+"="+here)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	attributes.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = attributes
	// Before the start, so that none is lost that comes in between.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("make a user and network namespace: %w%s", err, advice())
	}
	exited := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		forward(ctx, cmd.Process, signals, exited)
	}()
	err = cmd.Wait()
	close(exited)
	<-forwarded
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("wait for the program in the namespace: %w", err)
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal()), nil // as shells do
	}
	return cmd.ProcessState.ExitCode(), nil
}

func forward(ctx context.Context, child *os.Process, signals <-chan os.Signal, exited <-chan struct{}) {
	done := ctx.Done()
	for {
		select {
		case <-exited:
			return
		case <-done:
			done = nil
			_ = child.Signal(unix.SIGTERM) // it may be gone by now
		case sig := <-signals:
			// What the terminal sends goes to the whole foreground group, so the child
			// has it already; a second interrupt would cut its orderly end short.
			if (sig == unix.SIGINT || sig == unix.SIGQUIT) && inForeground() {
				continue
			}
			_ = child.Signal(sig)
		}
	}
}

func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close() //nolint:errcheck // it is only asked
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func current() (string, error) { return os.Readlink("/proc/self/ns/net") }

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func onLoopback(verb string, addr netip.Addr, do func(netlink.Link, *netlink.Addr) error) error {
	if !Inside() {
		return fmt.Errorf("%s address %s: the program is not in a namespace of its own", verb, addr)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("%s address %s: %w", verb, addr, err)
	}
	parsed, err := netlink.ParseAddr(netip.PrefixFrom(addr, addr.BitLen()).String())
	if err != nil {
		return fmt.Errorf("%s address %s: %w", verb, addr, err)
	}
	if addr.Is6() {
		parsed.Flags = unix.IFA_F_NODAD // else it is tentative, and cannot be bound, for a second
	}
	if err := do(lo, parsed); err != nil {
		return fmt.Errorf("%s address %s: %w", verb, addr, err)
	}
	return nil
}

// advice names the kernel settings that forbid the namespace, as far as they can be seen.
func advice() string {
	value := func(setting string) string {
		raw, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(setting, ".", "/"))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(raw))
	}
	var hints []string
	hint := func(setting, bad, good string) {
		if value(setting) == bad {
			hints = append(hints, fmt.Sprintf("\n  %s is %s: sudo sysctl -w %s=%s", setting, bad, setting, good))
		}
	}
	hint("kernel.unprivileged_userns_clone", "0", "1")
	hint("user.max_user_namespaces", "0", "15000")
	hint("user.max_net_namespaces", "0", "15000")
	hint("kernel.apparmor_restrict_unprivileged_userns", "1", "0")
	if len(hints) == 0 {
		hints = append(hints, "\n  In a container its seccomp profile may forbid it: "+
			"run it with --security-opt seccomp=unconfined (and apparmor=unconfined), or outside of the container.")
	}
	return "\nThe kernel does not let this program make itself a user and network namespace." + strings.Join(hints, "")
}
