package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

func cut(r *inventoryv1.ListNodesRequest, sorted []string) (got []string, next string, err error) {
	page, next, err := Cut(r, sorted, func(s string) string { return s }, wrapperspb.String)
	for _, w := range page {
		got = append(got, w.GetValue())
	}
	return got, next, err
}

func names(n, length int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%06d", i)+strings.Repeat("x", length))
	}
	return all
}

func TestPagesHaveEveryElementOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		elements, length int
		pageSize         int32
		want             []int // sizes of the pages
	}{
		"none":                          {0, 0, 0, []int{0}},
		"one page":                      {3, 0, 0, []int{3}},
		"exactly one page":              {3, 0, 3, []int{3}},
		"a smaller last page":           {5, 0, 2, []int{2, 2, 1}},
		"the default size":              {2001, 0, 0, []int{1000, 1000, 1}},
		"a size above the largest":      {1001, 0, 5000, []int{1000, 1}},
		"a page as large as is allowed": {5, 600 << 10, 0, []int{2, 2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			all := names(tt.elements, tt.length)
			var sizes []int
			var got []string
			for token := ""; ; {
				page, next, err := cut(&inventoryv1.ListNodesRequest{PageSize: tt.pageSize, PageToken: token}, all)
				if err != nil {
					t.Fatal(err)
				}
				sizes, got = append(sizes, len(page)), append(got, page...)
				if token = next; token == "" {
					break
				}
			}
			if !slices.Equal(got, all) || !slices.Equal(sizes, tt.want) {
				t.Errorf("pages of %v with %d elements, want %v with %d", sizes, len(got), tt.want, len(all))
			}
		})
	}
}

func TestPageStartsBehindElementThatHasLeft(t *testing.T) {
	_, next, err := cut(&inventoryv1.ListNodesRequest{PageSize: 2}, []string{"a", "c", "e"})
	if err != nil {
		t.Fatal(err)
	}
	got, next, err := cut(&inventoryv1.ListNodesRequest{PageToken: next}, []string{"b", "d", "e"})
	if want := []string{"d", "e"}; !slices.Equal(got, want) || next != "" || err != nil {
		t.Errorf("got %v, %q, %v, want %v", got, next, err, want)
	}
}

func TestRejectsInvalidPageRequests(t *testing.T) {
	for name, r := range map[string]*inventoryv1.ListNodesRequest{"size": {PageSize: -1}, "token": {PageToken: "%"}} {
		if _, _, err := cut(r, nil); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
	}
}
