package control

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// updated is a cluster of one slice, and what it was updated to.
type updated struct {
	applier.Store

	is, slice *discoveryv1.EndpointSlice
}

func (u *updated) Get(context.Context, string, string) (*discoveryv1.EndpointSlice, error) {
	return u.is, nil
}

func (u *updated) List(context.Context, string, string) ([]*discoveryv1.EndpointSlice, string, error) {
	return []*discoveryv1.EndpointSlice{u.is}, "1", nil
}

func (u *updated) Update(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	u.slice = slice
	return slice, nil
}

func TestSlicesOfARejectedServiceAreNotRewritten(t *testing.T) {
	key := targets.Key{Namespace: "web", Name: "shop"}
	name, port, protocol, yes, no := "http", int32(30080), corev1.ProtocolTCP, true, false
	listed := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-slicefeed", ResourceVersion: "1", UID: "u", Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "slicefeed-default",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		}},
	}
	for _, rejected := range []bool{true, false} {
		o := newOffice(t, &elected{})
		view := targets.Resolution{
			Synced: true, Relevant: true, Slices: []*discoveryv1.EndpointSlice{listed.DeepCopy()},
			Target: targets.Target{
				Key: key, ManagedBy: "slicefeed-default", FirstName: "shop-slicefeed", Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
				Settings: targets.Settings{Sources: []string{"default"}, ListUnready: true},
			},
			ServiceRef: corev1.ObjectReference{Namespace: "web", Name: "shop", UID: "uid"},
		}
		if rejected {
			view.Rejection, view.ProbesOnly = &targets.Rejection{Reason: "ServiceHasSelector", Message: "Remove it."}, true
		}
		c, wrote := o.control(key, o), &updated{is: listed}
		c.applier = applier.New(applier.Config{Store: wrote, Leading: func() bool { return true }, Reporter: o.reporter, Logger: o.log, Metrics: applier.NewMetrics(prometheus.NewRegistry())})
		source := c.sources["default"]
		source.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
		c.sources["default"] = source
		write, _, _ := c.judge(view, time.Now())
		c.tell()
		if write == nil {
			t.Fatalf("rejected %t: there is nothing to write", rejected)
		}
		if err := write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (wrote.slice == nil) != rejected {
			t.Errorf("rejected %t: written is %v", rejected, wrote.slice)
		}
		views, _ := o.board.Views(nil)
		if len(views) != 1 || views[0].FollowsProbes != rejected {
			t.Errorf("rejected %t: others are told of %+v", rejected, views)
		}
	}
}
