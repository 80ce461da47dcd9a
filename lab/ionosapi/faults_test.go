package ionosapi

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

func TestFaultsThatReplaceOrSpoilTheAnswerLookToTheSDKAsTheRealOnes(t *testing.T) {
	status := func(want int) func(*testing.T, ionoscloud.Servers, *ionoscloud.APIResponse, error) {
		return func(t *testing.T, _ ionoscloud.Servers, r *ionoscloud.APIResponse, err error) {
			if err == nil || r == nil || r.Response == nil || r.StatusCode != want {
				t.Errorf("got %v", err)
			}
		}
	}
	silent := func(t *testing.T, s ionoscloud.Servers, _ *ionoscloud.APIResponse, err error) {
		if err != nil || s.Items != nil {
			t.Errorf("got %v, items %v: the SDK takes it for success without items", err, s.Items)
		}
	}
	says := func(want string) func(*testing.T, ionoscloud.Servers, *ionoscloud.APIResponse, error) {
		return func(t *testing.T, _ ionoscloud.Servers, _ *ionoscloud.APIResponse, err error) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	for kind, check := range map[Kind]func(*testing.T, ionoscloud.Servers, *ionoscloud.APIResponse, error){
		TooManyRequests:        status(429),
		TooManyRequestsSeconds: status(429),
		TooManyRequestsDate:    says("invalid duration"),
		ServerError:            status(500),
		BadGatewayHTML:         says("text/html"),
		Unavailable:            status(503),
		Unauthorized:           status(401),
		Hang:                   says("context canceled"),
		Redirect:               status(307),
		EmptyBody:              silent,
		EmptyObject:            silent,
		NoContent:              silent,
		ErrorIn200:             silent,
		ItemsNull:              silent,
		Truncated:              says("unexpected end"),
		UnknownType:            says("quantum-thing"),
		StringLAN:              says("int32"),
		PlainText:              says("text/plain"),
		Reset: func(t *testing.T, _ ionoscloud.Servers, _ *ionoscloud.APIResponse, err error) {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
				t.Errorf("got %v", err)
			}
		},
		WrongID: func(t *testing.T, s ionoscloud.Servers, _ *ionoscloud.APIResponse, err error) {
			if err != nil || *s.Id != "something-else-"+dc+"/servers" {
				t.Errorf("got %v", err)
			}
		},
		Oversized: func(t *testing.T, s ionoscloud.Servers, r *ionoscloud.APIResponse, err error) {
			if err != nil || len(*s.Items) != 2 || len(r.Payload) < 3<<20 {
				t.Errorf("got %v, %d bytes", err, len(r.Payload))
			}
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e, c := start(t, 2)
			fault(t, e, Fault{Kind: kind, Bytes: 3 << 20, Path: "/datacenters/" + dc + "/servers"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if kind == Hang { // it would have answered by then
				ctx = sent(ctx, func() { time.AfterFunc(100*time.Millisecond, cancel) })
			}
			get := c.ServersApi.DatacentersServersGet(ctx, dc).Depth(3)
			s, r, err := get.Execute()
			check(t, s, r, err)
			if r != nil && r.Response != nil && strings.HasPrefix(string(kind), "429-") && r.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			e.Cloud.ClearFaults()
			if got, _, err := c.ServersApi.DatacentersServersGet(t.Context(), dc).Depth(3).Execute(); err != nil || len(*got.Items) != 2 {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
}

func TestFaultsThatShowAnotherState(t *testing.T) {
	first := func(s ionoscloud.Servers) ionoscloud.Server { return (*s.Items)[0] }
	ips := func(s ionoscloud.Server) []string { return *(*s.Entities.Nics.Items)[0].Properties.Ips }
	for kind, check := range map[Kind]func(a, b ionoscloud.Servers, lan ionoscloud.Lan) bool{
		EmptyList: func(a, _ ionoscloud.Servers, _ ionoscloud.Lan) bool {
			return a.Items != nil && len(*a.Items) == 0 && *a.Id == dc+"/servers"
		},
		Shrink: func(a, _ ionoscloud.Servers, _ ionoscloud.Lan) bool {
			return len(*a.Items) == 1 && *first(a).Id == uuid(1) && a.Links.Next != nil
		},
		Repeat: func(a, b ionoscloud.Servers, _ ionoscloud.Lan) bool {
			return *first(a).Id == uuid(0) && *first(b).Id == uuid(0) && *b.Offset == 2
		},
		NoLinks: func(a, b ionoscloud.Servers, _ ionoscloud.Lan) bool {
			return a.Links == nil && b.Links == nil && len(*a.Items) == 2 && *a.Limit == 2
		},
		ZeroLimit: func(a, _ ionoscloud.Servers, _ ionoscloud.Lan) bool {
			return a.Limit != nil && *a.Limit == 0 && len(*a.Items) == 2 && a.Links.Next != nil
		},
		Busy:     func(a, _ ionoscloud.Servers, _ ionoscloud.Lan) bool { return *first(a).Metadata.State == "BUSY" },
		LateNICs: func(a, _ ionoscloud.Servers, _ ionoscloud.Lan) bool { return len(*first(a).Entities.Nics.Items) == 0 },
		DuplicateNames: func(a, b ionoscloud.Servers, _ ionoscloud.Lan) bool {
			return *first(a).Properties.Name == *first(b).Properties.Name
		},
		ShuffledIPs: func(a, _ ionoscloud.Servers, _ ionoscloud.Lan) bool { return len(ips(first(a))) == 1 },
		SharedAddress: func(a, b ionoscloud.Servers, lan ionoscloud.Lan) bool {
			return ips(first(a))[0] == "10.0.0.250" && ips(first(b))[0] == "10.0.0.250" && len(*lan.Properties.IpFailover) == 2
		},
		HiddenSharing: func(a, b ionoscloud.Servers, lan ionoscloud.Lan) bool {
			return ips(first(a))[0] == "10.0.0.250" && ips(first(b))[0] == "10.0.0.250" && len(*lan.Properties.IpFailover) == 1
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			e, c := start(t, 4)
			fault(t, e, Fault{Kind: kind})
			a, _, err := list(t, c, 3, 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := list(t, c, 3, 2, 2)
			if err != nil {
				t.Fatal(err)
			}
			lan, _, err := c.LANsApi.DatacentersLansFindById(t.Context(), dc, "2").Execute()
			if err != nil {
				t.Fatal(err)
			}
			if !check(a, b, lan) {
				t.Errorf("got %+v", a)
			}
			e.Cloud.ClearFaults()
			if back, _, err := list(t, c, 3, 10, 0); err != nil || len(*back.Items) != 4 || ips(first(back))[0] != "10.0.0.10" {
				t.Error("the fault changed the state itself")
			}
		})
	}
}

func TestAFaultSkipsThenHitsACountOfRequestsToItsPath(t *testing.T) {
	e, c := start(t, 1)
	fault(t, e, Fault{Kind: Unauthorized, Path: basePath + "/datacenters/" + dc + "/servers", Skip: 1, Count: 2})
	var got []bool
	for range 5 {
		_, _, err := list(t, c, 3, 10, 0)
		got = append(got, err != nil)
		if _, _, err := c.LANsApi.DatacentersLansFindById(t.Context(), dc, "2").Execute(); err != nil {
			t.Error("another path is hit")
		}
	}
	if !slices.Equal(got, []bool{false, true, true, false, false}) || len(e.Cloud.Faults()) != 0 {
		t.Errorf("got %v, left %v", got, e.Cloud.Faults())
	}
}
