package roster

import (
	"strings"
	"testing"
)

func TestProviderIDsAreReadInBothTheirForms(t *testing.T) {
	for id, want := range map[string][2]string{
		"ionos://" + s1:                   {"", s1},
		" IONOS://" + strings.ToUpper(s1): {"", s1},
		"ionos:///" + dc + "/" + s1:       {dc, s1},
		"":                                {},
		"aws://" + s1:                     {},
		"ionos://":                        {},
		"ionos:" + s1:                     {},
		"k3s://" + s1:                     {},
		"ionos://worker-1":                {},
		"ionos:///" + s1:                  {},
		"ionos:///" + dc + "/worker-1":    {},
		"ionos:///frankfurt/" + s1:        {},
		"ionos://" + dc + "/" + s1:        {},
		"ionos://" + s1[:35]:              {},
		"ionos://" + s1 + "0":             {},
		"ionos://" + strings.Replace(s1, "-", "0", 1): {},
		"ionos://g" + s1[1:]:                          {},
		"ionos://." + s1[1:]:                          {},
		"ionos://:" + s1[1:]:                          {},
		"ionos:///." + dc[1:] + "/" + s1:              {},
		"ionos:///" + dc + "/" + s1 + "/extra":        {},
	} {
		datacenter, server, isOurs := parseProviderID(id)
		if datacenter != want[0] || server != want[1] || isOurs != strings.HasPrefix(strings.ToLower(strings.TrimSpace(id)), "ionos:") {
			t.Errorf("%q: got %q, %q, %t", id, datacenter, server, isOurs)
		}
	}
	if !isUUID("09afffff-0000-4000-8000-000000000000") {
		t.Error("the first and the last of the digits and letters are refused")
	}
}
