package serve

import "net"

// Replace has the server accept from a listener of a test's making, so that a whole server fits into a
// synctest bubble.
func (s *Server) Replace(listener net.Listener) error {
	err := s.listener.Close()
	s.listener = listener
	return err
}
