// Package page cuts a sorted list into pages, as AIP-158 describes them. It guarantees that a page fits
// into a message and that following the tokens visits every element that stays in the list once. It
// keeps nothing between two pages: a token is the key of the last element of the page before.
package page

import (
	"encoding/base64"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	maxElements = 1000    // of a page
	maxBytes    = 1 << 20 // of a page, except that its last element may exceed it
)

// Request is a request for a page.
type Request interface {
	GetPageSize() int32
	GetPageToken() string
}

// Cut returns the page that a request asks for, and the token of the next page or "". The list must be
// sorted by key. An error is for the client.
func Cut[E any, W proto.Message](r Request, sorted []E, key func(E) string, encode func(E) W) (page []W, nextToken string, err error) {
	last, err := base64.RawURLEncoding.DecodeString(r.GetPageToken())
	switch {
	case err != nil:
		return nil, "", status.Error(codes.InvalidArgument, "page_token is invalid: use next_page_token of the previous page")
	case r.GetPageSize() < 0:
		return nil, "", status.Errorf(codes.InvalidArgument, "page_size is %d: it must not be negative", r.GetPageSize())
	}
	limit := int(r.GetPageSize())
	if limit == 0 || limit > maxElements {
		limit = maxElements
	}
	size, lastKey := 0, string(last)
	for _, e := range sorted {
		if r.GetPageToken() != "" && key(e) <= string(last) {
			continue
		}
		if len(page) == limit || size > maxBytes {
			return page, base64.RawURLEncoding.EncodeToString([]byte(lastKey)), nil
		}
		encoded := encode(e)
		size += proto.Size(encoded)
		page, lastKey = append(page, encoded), key(e)
	}
	return page, "", nil
}
