package netns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	first  = netip.MustParseAddr("10.0.0.11")
	second = netip.MustParseAddr("10.0.1.12")
	sixth  = netip.MustParseAddr("fd00::6")
)

// roleEnv makes the test binary a helper program instead: it enters a namespace of its
// own and then does what the role says.
const roleEnv = "SLICEFEED_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		Main(m, first, sixth)
	}
	if err := Enter(context.Background()); err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(99)
	}
	switch role {
	case "exit":
		os.Exit(7)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "wait":
		os.Stdout.WriteString(strconv.Itoa(os.Getpid()) + "\n")
		time.Sleep(time.Minute)
	}
	os.Exit(98)
}

// helper is the test binary in a role, as if it was started outside of the namespace.
func helper(role string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, outsideEnv+"=")
	return cmd
}

func TestAddressesOfTheNamespaceCanBeListenedOnAndReached(t *testing.T) {
	for _, addr := range []netip.Addr{first, sixth} {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}

func TestAddressesComeAndGo(t *testing.T) {
	listen := func() error {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(second, 0).String())
		if err == nil {
			err = listener.Close()
		}
		return err
	}
	if err := listen(); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("before: %v, want address not available", err)
	}
	for range 2 { // the second time changes nothing
		if err := AddAddr(second); err != nil {
			t.Fatal(err)
		}
	}
	if err := listen(); err != nil {
		t.Errorf("added: %v", err)
	}
	if err := DelAddr(second); err != nil {
		t.Fatal(err)
	}
	if err := listen(); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("removed: %v, want address not available", err)
	}
}

func TestConnectingToARemovedAddressFailsAtOnce(t *testing.T) {
	start := time.Now()
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), 80).String(), 5*time.Second)
	if err == nil {
		_ = conn.Close()
		t.Fatal("connected to an address nobody has")
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestTheExitCodeIsPassedOn(t *testing.T) {
	for role, want := range map[string]int{"exit": 7, "kill": 128 + 9} {
		err := helper(role).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want {
			t.Errorf("%s: got %v, want exit code %d", role, err, want)
		}
	}
}

func waiting(t *testing.T) (cmd *exec.Cmd, inner int) {
	t.Helper()
	cmd = helper("wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	inner, err = strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, inner
}

func TestSignalsArePassedOn(t *testing.T) {
	cmd, _ := waiting(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+15 {
		t.Errorf("got %v, want exit code 143", err)
	}
}

func TestTheProgramInsideDiesWithTheOneOutside(t *testing.T) {
	cmd, inner := waiting(t)
	handle, err := openPidfd(inner)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !handle.gone(10 * time.Second) {
		t.Error("still there")
	}
}

func TestTheErrorSaysWhichSettingForbidsIt(t *testing.T) {
	for name, row := range map[string]struct{ files, want string }{
		"Debian's switch":        {"/proc/sys/kernel/unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1"},
		"no namespaces at all":   {"/proc/sys/user/max_user_namespaces", "sysctl -w user.max_user_namespaces=15000"},
		"AppArmor's restriction": {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		"nothing to be seen":     {"", "seccomp=unconfined"},
	} {
		t.Run(name, func(t *testing.T) {
			got := adviceFrom(func(path string) ([]byte, error) {
				switch {
				case path != row.files:
					return nil, os.ErrNotExist
				case strings.Contains(path, "apparmor"):
					return []byte("1\n"), nil
				default:
					return []byte("0\n"), nil
				}
			})
			if !strings.Contains(got, row.want) {
				t.Errorf("got %s\nwant it to contain %s", got, row.want)
			}
		})
	}
}
