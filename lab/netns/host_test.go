package netns

import (
	"io"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"
)

func TestAHostIsCutOffFromSomeAddressesAndNotFromOthers(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.77")
	for _, addr := range []netip.Addr{own, second} {
		if err := AddAddr(addr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = DelAddr(addr) })
	}
	host, err := NewHost(own)
	if err != nil {
		t.Fatal(err)
	}
	near, remote := mirror(t, first), mirror(t, second)
	// What is there may take its time on a loaded machine; for what is not there, a while is enough.
	const silence = 300 * time.Millisecond
	reaches := func(server net.Addr, want bool) bool {
		within := silence
		if want {
			within = 10 * time.Second
		}
		var seen []byte
		err := host.inside(func() error {
			conn, err := net.DialTimeout("tcp", server.String(), within)
			if err == nil {
				seen, err = io.ReadAll(conn)
				_ = conn.Close()
			}
			return err
		})
		if err == nil && string(seen) != own.String() {
			t.Errorf("%s was called by %q, want %s", server, seen, own)
		}
		return err == nil
	}
	want := func(when string, one, other bool) {
		t.Helper()
		if got := reaches(near, one); got != one {
			t.Errorf("%s: %s is reached: %t, want %t", when, near, got, one)
		}
		if got := reaches(remote, other); got != other {
			t.Errorf("%s: %s is reached: %t, want %t", when, remote, got, other)
		}
	}
	want("at first", true, true)
	away := netip.PrefixFrom(second, 24).Masked()
	if err := host.Cut(away); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	want("cut", true, false)
	if took := time.Since(begun); took < silence {
		t.Errorf("it was told after %s that nobody is there", took)
	}
	if err := host.Mend(away); err != nil {
		t.Fatal(err)
	}
	want("mended", true, true)

	argv := host.Command("readlink", "/proc/self/ns/net")
	there, err := exec.Command(argv[0], argv[1:]...).Output()
	if here, _ := current(); err != nil || string(there) == here+"\n" {
		t.Errorf("a command runs in %q (%v), and we in %q", there, err, here)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	mirror(t, own) // the address is back
}

// mirror tells everybody who calls which address the call comes from.
func mirror(t *testing.T, at netip.Addr) net.Addr {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, conn.RemoteAddr().(*net.TCPAddr).IP.String())
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr()
}
