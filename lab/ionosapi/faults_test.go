package ionosapi

import (
	"slices"
	"testing"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

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
