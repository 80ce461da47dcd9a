package monitoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

var update = flag.Bool("update", false, "write the pictures of the dashboards into docs/images (after lab/monitoring/grafana/build)")

// pictures draws both dashboards during further faults, whose states their tables and numbers show.
func (r *room) pictures(deploy string, workers []*pair.Worker) {
	if !*update {
		return
	}
	w, err := r.AddWorker(pair.WorkerOptions{Name: "worker-4", Address: netip.MustParseAddr("10.0.1.20")})
	must(r.t, err)
	must(r.t, w.Join(r.ctx()))
	r.sees(`slicefeed_writer_endpoints{service="shop", state="ready"} == 4`)
	must(r.t, w.Drain(r.ctx(), true))
	r.sees(`slicefeed_writer_endpoints{service="shop", state="draining"} == 1`)
	must(r.t, w.Leave(r.ctx()))
	r.sees(`max(sum by (instance) (slicefeed_writer_endpoints{service="shop"})) == 3`)
	r.lonely()
	r.all(workers, backend.Refuse)
	r.sees(`slicefeed_writer_guard_held_endpoints > 0`)
	r.sees(`slicefeed_writer_target_problem{service="lonely", problem="no_ready_endpoints"} == 1`)
	for _, half := range halves {
		must(r.t, r.picture(deploy, half))
	}
}

func (r *room) picture(deploy, half string) error {
	raw, err := os.ReadFile(filepath.Join(deploy, "slicefeed-"+half, "dashboard.json"))
	if err != nil {
		return err
	}
	panels, err := Panels(raw)
	if err != nil {
		return err
	}
	answers := make([][][]Series, len(panels))
	for i, panel := range panels {
		ask := r.Query // numbers and tables show what is so now
		if panel.Type == "timeseries" {
			ask = r.History
		}
		for _, query := range panel.Queries {
			series, err := ask(r.ctx(), query)
			if err != nil {
				return err
			}
			answers[i] = append(answers[i], series)
		}
	}
	data, err := json.Marshal(map[string]any{
		"board": json.RawMessage(raw), "answers": answers, "begin": r.began.UnixMilli(), "end": time.Now().UnixMilli(),
	})
	if err != nil {
		return err
	}
	page := fmt.Sprintf(`<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css">
<style>* { box-sizing: border-box } html { font-size: 14px } body { margin: 0; background: #f4f5f5 }</style>
<div id="board"></div><script>window.data = %s</script><script src="page.js"></script>`, data) // json.Marshal escapes <
	file := filepath.Join(deploy, "..", ".bin", "grafana", half+".html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		return err
	}
	var board struct {
		Panels []struct{ GridPos struct{ Y, H int } }
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		return err
	}
	last := board.Panels[len(board.Panels)-1].GridPos
	shot := filepath.Join(r.t.TempDir(), "shot.png")
	chromium := exec.CommandContext(
		r.ctx(),
		"chromium",
		"--headless",
		"--no-sandbox",
		"--hide-scrollbars",
		"--virtual-time-budget=10000",
		"--user-data-dir="+r.t.TempDir(),
		fmt.Sprintf("--window-size=1320,%d", 60+(last.Y+last.H)*38+4),
		"--screenshot="+shot,
		"file://"+file,
	)
	if out, err := chromium.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return reduceColors(shot, filepath.Join(deploy, "..", "docs", "images", "dashboard-"+half+".png"))
}

// reduceColors writes a PNG picture with its 256 most frequent colors. They suffice for lines and texts, and it takes a
// third of the space.
func reduceColors(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	counts := map[color.RGBA]int{}
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			counts[roundColor(picture.At(x, y))]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var palette color.Palette
	nearest := map[color.RGBA]uint8{}
	for _, c := range frequent[:min(256, len(frequent))] {
		palette = append(palette, c)
	}
	for c := range counts {
		nearest[c] = uint8(palette.Index(c))
	}
	reduced := image.NewPaletted(picture.Bounds(), palette)
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			reduced.SetColorIndex(x, y, nearest[roundColor(picture.At(x, y))])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduced); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// roundColor keeps white, and 32 levels of each part.
func roundColor(c color.Color) color.RGBA {
	r, g, b, _ := c.RGBA()
	round := func(v uint32) uint8 { return uint8(min(255, (v>>8+4)/8*8)) }
	return color.RGBA{round(r), round(g), round(b), 255}
}
