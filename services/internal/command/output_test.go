package command

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

func TestWritesMessagesAsProtoJSON(t *testing.T) {
	for format, want := range map[Format]string{
		JSON: `{
  "membership": {
    "state": "SYNC_STATE_SYNCED",
    "reason": "a<b> \u001b[2J\u009b\u202e\u007f\udb40\udc01é"
  },
  "observation": "0"
}
`,
		YAML: `membership:
  reason: "a<b> \e[2J    é"
  state: SYNC_STATE_SYNCED
observation: "0"
`,
	} {
		var out bytes.Buffer
		err := format.Write(&out, &inventoryv1.SourceStatus{Membership: &inventoryv1.PartStatus{
			State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Reason: "a<b> \x1b[2J\u009b\u202e\x7f\U000e0001é",
		}})
		if diff := cmp.Diff(want, out.String()); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", format, err, diff)
		}
	}
}

func TestWritesPartsOfResult(t *testing.T) {
	var out bytes.Buffer
	format := JSON
	if err := format.Write(&out, map[string]any{
		"absent": Message{(*inventoryv1.Node)(nil)},
		"list":   Messages([]*inventoryv1.Cursor{{Revision: 7}}),
		"none":   Messages[*inventoryv1.Cursor](nil),
	}); err != nil {
		t.Fatal(err)
	}
	want := `{
  "absent": null,
  "list": [
    {
      "epoch": "",
      "revision": "7"
    }
  ],
  "none": []
}
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
