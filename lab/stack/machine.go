package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Port is one that the stack publishes on 127.0.0.1.
type Port struct {
	Variable string // that moves it
	Number   string
	What     string
}

// Busy says of all ports at once which another program has. published is what `docker ps`
// says of the stack's own containers: their ports are no obstacle.
func Busy(ctx context.Context, ports []Port, published string) error {
	var problems []error
	taken := map[string]string{}
	for _, p := range ports {
		address, err := netip.ParseAddrPort("127.0.0.1:" + p.Number)
		if err != nil || address.Port() == 0 {
			problems = append(problems, fmt.Errorf("%s=%s: want a port number", p.Variable, p.Number))
			continue
		}
		if other, ok := taken[p.Number]; ok {
			problems = append(problems, fmt.Errorf("%s and %s are both %s: give them different ports", other, p.Variable, p.Number))
			continue
		}
		taken[p.Number] = p.Variable
		if strings.Contains(published, address.String()+"->") {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			problems = append(
				problems,
				fmt.Errorf("port %s for %s is busy: another program listens on %s; stop it, or choose another port: make up %s=…",
					p.Number, p.What, address, p.Variable),
			)
		case err != nil:
			problems = append(
				problems,
				fmt.Errorf("port %s for %s cannot be opened; choose another: make up %s=…: %w", p.Number, p.What, p.Variable, err),
			)
		default:
			_ = l.Close()
		}
	}
	return errors.Join(problems...)
}

// Connect tries all addresses at once, for a second, and says of each what became of it.
func Connect(ctx context.Context, addresses []string) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lines := make([]string, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				lines[i] = address + " not reached: " + err.Error()
				return
			}
			_ = conn.Close()
			lines[i] = address + " reached"
		})
	}
	all.Wait()
	return lines
}

// Await waits until the Service has an endpoint for each worker, all ready, and tells on out
// how far it is.
func Await(ctx context.Context, client kubernetes.Interface, within time.Duration, out io.Writer) error {
	var want []string
	for _, w := range Workers() {
		want = append(want, w.Address.String())
	}
	told := ""
	err := await(ctx, within, func(ctx context.Context) error {
		ready, err := readyEndpoints(ctx, client)
		if err != nil {
			return err
		}
		if slices.Equal(ready, want) {
			return nil
		}
		err = fmt.Errorf(
			"the Service %s/%s has %d of %d endpoints: %s",
			Namespace,
			Service,
			len(ready),
			len(want),
			strings.Join(ready, " "),
		)
		if now := err.Error(); now != told {
			fmt.Fprintln(out, "  "+now)
			told = now
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: docker logs slicefeed-writer-1 and slicefeed-inventory say why", err)
	}
	return nil
}

func readyEndpoints(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	all, err := client.DiscoveryV1().
		EndpointSlices(Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + Service})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, slice := range all.Items {
		for _, e := range slice.Endpoints {
			if slice.AddressType == discoveryv1.AddressTypeIPv4 && e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	slices.Sort(ready)
	return ready, nil
}
