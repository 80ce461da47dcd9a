package report

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

func TestPlansToDeleteSlicesOfServiceThatOptedOut(t *testing.T) {
	p := Preview{Key: targets.Key{Namespace: "web", Name: "shop"}}
	p.View.State, p.View.Slices = targets.Leaving, []*discoveryv1.EndpointSlice{newSlice("10.0.1.1")}
	var all writerv1.WriterReport
	addPlan(&all, p.plan())
	var text strings.Builder
	if err := report.Write(&text, &all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"SERVICE web/shop\nstate:      opted out\n", "\nWRITES\nshop-slicefeed: delete planned\n", "\n  - endpoint 10.0.1.1 ready\nopted out: its slices will be deleted\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got no %q in:\n%s", want, &text)
		}
	}
}
