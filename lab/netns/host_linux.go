package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host is a machine of its own on the lab's network: a namespace within the program's, joined
// to it by one cable. It has one address; all other addresses are at the far end of the
// cable. In one namespace for all, nothing could be cut off from anything alone: what
// happens to an address there happens to everybody.
type Host struct {
	address   netip.Addr
	cable     string
	namespace *os.File
}

const (
	gateway = "169.254.0.1" // of every host: the near end of its cable
	nowhere = "169.254.0.2" // a neighbour whose hardware address nobody has
	far     = "eth0"        // the cable's end in the host
)

var hosts atomic.Int32

// NewHost makes a host with that address, which the program's own namespace loses to it.
// Close it in the end.
func NewHost(address netip.Addr) (*Host, error) {
	if !Inside() {
		return nil, fmt.Errorf("make host %s: the program is not in a namespace of its own", address)
	}
	h := &Host{address: address, cable: "host" + strconv.Itoa(int(hosts.Add(1)))}
	if err := h.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("make host %s: %w", address, err), h.Close())
	}
	return h, nil
}

func (h *Host) build() error {
	err := OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		h.namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return err
	}
	err = netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: h.cable}, PeerName: far, PeerNamespace: netlink.NsFd(int(h.namespace.Fd())),
	})
	if err != nil {
		return err
	}
	near, err := up(h.cable, gateway)
	if err != nil {
		return err
	}
	if err := DelAddr(h.address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	err = netlink.RouteAdd(&netlink.Route{
		LinkIndex: near.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: network(single(h.address)), Src: net.ParseIP(gateway),
	})
	if err != nil {
		return err
	}
	return h.inside(func() error {
		if err := loopbackUp(); err != nil {
			return err
		}
		cable, err := up(far, h.address.String())
		if err != nil {
			return err
		}
		err = netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: cable.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP(nowhere), HardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01},
		})
		if err != nil {
			return err
		}
		everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		return netlink.RouteAdd(&netlink.Route{LinkIndex: cable.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: network(everything)})
	})
}

// up gives a link an address and brings it up.
func up(name, address string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	parsed, err := netlink.ParseAddr(address + "/32")
	if err != nil {
		return nil, err
	}
	if err := netlink.AddrAdd(link, parsed); err != nil {
		return nil, err
	}
	return link, netlink.LinkSetUp(link)
}

// Route makes the host a router, and has it carry the packets to a prefix: as a Node does that has Pods.
func (h *Host) Route(to netip.Prefix) error {
	if err := h.forward(to); err != nil {
		return fmt.Errorf("route %s by host %s: %w", to, h.address, err)
	}
	return nil
}

func (h *Host) forward(to netip.Prefix) error {
	const setting = "/proc/sys/net/ipv4/ip_forward" // of the namespace of whoever writes it
	if err := os.WriteFile(setting, []byte("1"), 0); err != nil {
		return err
	}
	err := h.inside(func() error {
		if err := os.WriteFile(setting, []byte("1"), 0); err != nil {
			return err
		}
		cable, err := netlink.LinkByName(far)
		if err != nil {
			return err
		}
		// By the near end, since it says for no other host's addresses that they are here.
		return netlink.RouteReplace(&netlink.Route{
			LinkIndex: cable.Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Gw: net.ParseIP(gateway),
			Dst: network(netip.PrefixFrom(netip.IPv4Unspecified(), 0)),
		})
	})
	if err != nil {
		return err
	}
	near, err := netlink.LinkByName(h.cable)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{
		LinkIndex: near.Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Dst: network(to), Gw: h.address.AsSlice(),
	})
}

// Command is the command line that runs another one on the host, as the same process.
func (h *Host) Command(argv ...string) []string {
	namespace := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), h.namespace.Fd())
	return append([]string{"nsenter", namespace, "--"}, argv...)
}

// Cut loses every packet from the host to those addresses from now on, on connections that are
// open too. Nobody is told: that is what a cable does that was pulled out further away.
func (h *Host) Cut(to netip.Prefix) error { return h.route("cut", to, netlink.RouteAdd) }

// Mend ends a Cut.
func (h *Host) Mend(to netip.Prefix) error { return h.route("mend", to, netlink.RouteDel) }

func (h *Host) route(verb string, to netip.Prefix, do func(*netlink.Route) error) error {
	err := h.inside(func() error {
		cable, err := netlink.LinkByName(far)
		if err != nil {
			return err
		}
		return do(&netlink.Route{
			LinkIndex: cable.Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Dst: network(to), Gw: net.ParseIP(nowhere),
		})
	})
	if err != nil {
		return fmt.Errorf("%s the way from host %s to %s: %w", verb, h.address, to, err)
	}
	return nil
}

// Close pulls the cable out and gives the address back. What runs on the host goes on, alone.
func (h *Host) Close() error {
	var errs []error
	if link, err := netlink.LinkByName(h.cable); err == nil {
		errs = append(errs, netlink.LinkDel(link))
	}
	if h.namespace != nil {
		errs = append(errs, h.namespace.Close())
	}
	return errors.Join(append(errs, AddAddr(h.address))...)
}

// Join moves the calling thread onto the host, and what is started from it. The thread must be
// locked to its goroutine, and never be given back.
func (h *Host) Join() error { return unix.Setns(int(h.namespace.Fd()), unix.CLONE_NEWNET) }

// Dial connects to an address as the host sees it, its own loopback included.
func (h *Host) Dial(ctx context.Context, to netip.AddrPort) (conn net.Conn, err error) {
	err = h.inside(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}

func (h *Host) inside(do func() error) error {
	return OnThread(func() error {
		if err := h.Join(); err != nil {
			return err
		}
		return do()
	})
}

// OnThread runs something on a thread that nobody else gets: it ends with its goroutine, since
// that never unlocks it. The main thread is passed over, as it stands for the program in /proc.
func OnThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- OnThread(do)
			runtime.UnlockOSThread()
			return
		}
		done <- do()
	}()
	return <-done
}

func single(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
