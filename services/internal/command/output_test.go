package command

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWritesResultsThatCannotControlTerminals(t *testing.T) {
	for format, want := range map[Format]string{
		JSON: `{
  "state": "SYNCED",
  "reason": "a<b> \u001b[2J\u009b\u202e\u007f\udb40\udc01é"
}
`,
		YAML: `reason: "a<b> \e[2J    é"
state: SYNCED
`,
	} {
		var out bytes.Buffer
		err := format.Write(&out, struct {
			State  string `json:"state"`
			Reason string `json:"reason"`
		}{"SYNCED", "a<b> \x1b[2J\u009b\u202e\x7f\U000e0001é"})
		if diff := cmp.Diff(want, out.String()); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", format, err, diff)
		}
	}
}
