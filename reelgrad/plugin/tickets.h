#pragma once
#include <semaphore>

namespace reelgrad::vs {

// So many threads at a time.
using Tickets = std::counting_semaphore<>;

class Ticket {
 public:
  explicit Ticket(Tickets& tickets) : tickets_(tickets) { tickets_.acquire(); }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() { tickets_.release(); }

 private:
  Tickets& tickets_;
};

}  // namespace reelgrad::vs
