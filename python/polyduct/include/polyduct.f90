! The module polyduct: distributed arrays between parallel programs and files, for Fortran 2008.
!
!     use polyduct
!     type(polyduct_port) :: out
!     real, pointer :: a(:, :)
!     integer :: t
!     call out%open_write('-', [4096, 4096], 'f4', 'block,*')
!     do t = 1, 10
!       call out%step(a)        ! this unit's part, in shared memory: no copy
!       a = t
!       call out%publish()
!     end do
!     call out%close()
!
!     type(polyduct_port) :: in
!     real, pointer :: b(:, :)
!     call in%open_read('-', '*,block')
!     do while (in%next(b))     ! this unit's part, which the next step overwrites
!       print *, sum(b)
!     end do
!
!     gfortran $(polyduct config --fortran) simulate.f90 $(polyduct config --libs)
!
! Order. An array a(i, j) of Fortran is the array [i, j] of whoever is at the other end: shapes, indices
! (which count from 1 here) and layouts mean the same dimensions in the same order. Only in memory the first
! dimension is the fastest, which layouts call `order=F`: this module adds it to every layout that says none.
!
! Errors. Every procedure takes `stat=` and `errmsg=`, as `allocate` does. `stat` is POLYDUCT_OK, a positive
! outcome (POLYDUCT_END, POLYDUCT_DROPPED, POLYDUCT_NOT_YET) or a negative error, of the names in polyduct.h;
! without it an error stops the program, with its text.
!
! Arrays are of real32, real64, int32, int64 and of complex of both kinds, with one to four dimensions, and
! contiguous: others are an error. `polyduct_arrays.inc` has the procedures for each of these.
module polyduct
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int8, int32, int64, real32, real64
  implicit none
  private

  integer, parameter, public :: POLYDUCT_OK = 0, POLYDUCT_END = 1, POLYDUCT_NOT_YET = 2, POLYDUCT_DROPPED = 3
  integer, parameter, public :: POLYDUCT_MISUSE = -2, POLYDUCT_BAD_OPTION = -3, POLYDUCT_BAD_URL = -4
  integer, parameter, public :: POLYDUCT_LAYOUT_ERROR = -6, POLYDUCT_WRONG_SIZE = -7, POLYDUCT_WRONG_TYPE = -8
  integer, parameter, public :: POLYDUCT_CLOSED = -22, POLYDUCT_PEER_LOST = -23, POLYDUCT_PEER_LEFT = -24
  integer, parameter, public :: POLYDUCT_PEER_ABORTED = -25, POLYDUCT_READERS_GONE = -29
  integer, parameter, public :: POLYDUCT_REFUSED = -30, POLYDUCT_INTERRUPTED = -40
  integer, parameter, public :: POLYDUCT_TIMEOUT_ERROR = -38, POLYDUCT_ABSENT = -39, POLYDUCT_FILE_ERROR = -43
  integer, parameter, public :: POLYDUCT_FILE_MISSING = -44, POLYDUCT_STORE_ERROR = -46
  integer, parameter, public :: POLYDUCT_NO_UNIT = -10, POLYDUCT_IN_HANDLER = -12, POLYDUCT_REGION_ERROR = -13
  integer, parameter, public :: POLYDUCT_UNKNOWN_HANDLER = -15, POLYDUCT_CALL_FAILED = -34
  integer, parameter, public :: POLYDUCT_CALL_DEADLINE = -35, POLYDUCT_CALL_PEER_GONE = -37
  integer, parameter, public :: POLYDUCT_ANY = -1
  !> How an array of a bundle changes, and how pieces follow each other: as in polyduct.h.
  integer, parameter, public :: POLYDUCT_FIXED = 0, POLYDUCT_OPEN = 1, POLYDUCT_WHOLE = 2
  integer, parameter, public :: POLYDUCT_CONSTANT = 3
  integer, parameter, public :: POLYDUCT_ALONG = 0, POLYDUCT_STACKED = 1
  !> For the last index of a piece: all that follow; and the first index alone, without the dimension.
  integer, parameter, public :: POLYDUCT_TO_END = -1, POLYDUCT_ALONE = -2
  integer, parameter :: most = 8

  integer(c_int), parameter :: type_i4 = 4, type_i8 = 5, type_r4 = 11, type_r8 = 12
  integer(c_int), parameter :: type_c4 = 13, type_c8 = 14

  !> One unit's port, open for writing or for reading. One that goes out of scope is closed.
  type, public :: polyduct_port
    private
    type(c_ptr) :: handle = c_null_ptr
    type(c_ptr) :: memory = c_null_ptr !< Of the step that is open, or was read last.
  contains
    procedure, private :: open_write_4, open_write_8
    !> call p%open_write(url, shape, dtype, layout, ...): `dtype` as NumPy has it, 'f4', 'c16'.
    generic :: open_write => open_write_4, open_write_8
    procedure :: open_read => port_open_read
    procedure :: open_write_arrays => port_open_write_arrays
    procedure :: open_read_arrays => port_open_read_arrays
    procedure :: begin => port_begin     !< Begins a step of a bundle, whose parts `at` gives.
    procedure :: publish => port_publish !< Makes the step visible that was begun.
    procedure :: cancel => port_cancel   !< Forgets it.
    procedure :: come => port_come       !< Reads the next step of a bundle, whose parts `at` gives; or false.
    procedure :: set_bytes => port_set_bytes !< The same of bytes, integer(int8).
    procedure :: get_bytes => port_get_bytes
    procedure :: bring => port_bring     !< call p%bring(name, shape): how large it is in the step to come.
    procedure :: peek => port_peek       !< Waits for the next step, so that sizes are known; or false.
    procedure :: view_end => port_view_end !< Gives back what `view` gave.
    procedure :: steps => port_steps     !< That there are; -1 for a pipe, which does not know.
    procedure :: next_step => port_next_step !< Number of a writer's next step, from 0.
    procedure :: set_timeout => port_set_timeout
    procedure :: attributes => port_attributes !< What is written down of the array, as the text of JSON.
    procedure :: dims => port_dims             !< What its dimensions are called, 'time,y,x'.
    procedure :: domain => port_domain   !< call p%domain(d): that of all units of writers and readers.
    procedure :: unit => port_unit
    procedure :: units => port_units
    procedure :: shape => port_shape             !< Of the whole array.
    procedure :: local_shape => port_local_shape !< Of this unit's part.
    procedure :: lower => port_lower             !< Its first index in each dimension; 0 for several boxes.
    procedure :: upper => port_upper             !< Its last.
    procedure :: layout => port_layout
    procedure, private :: set_int, set_int8, set_real, set_text, get_int, get_int8, get_real, get_text
    !> call p%set(name, value): goes with the step to come of a bundle.
    generic :: set => set_int, set_int8, set_real, set_text
    !> call p%get(name, value): of the step that was read last.
    generic :: get => get_int, get_int8, get_real, get_text
    procedure :: c_handle => port_handle !< For functions of polyduct.h that the module has not.
    procedure :: close => port_close
    procedure :: abort => port_abort
    final :: port_end
    include 'polyduct_ports.inc'
  end type

  !> The arrays that a bundle has, or that a reader takes of one.
  type, public :: polyduct_arrays
    private
    integer :: count = 0
    type(one_array), allocatable :: all(:)
  contains
    procedure :: add => arrays_add   !< call b%add(name, shape, dtype, layout): of a writer.
    procedure :: take => arrays_take !< call b%take(pattern, layout): of a reader.
    procedure :: piece => arrays_piece !< call b%piece(array, ...): a piece of what was taken last.
  end type

  type :: one_array
    character(:), allocatable :: name, layout
    integer(c_int64_t), allocatable :: shape(:)
    integer(c_int) :: elem = 0
    integer(c_int32_t) :: changes = 0, open_dim = 0, join = 0, axis = 0
    character(:), allocatable :: attributes, dims
    type(one_piece), allocatable :: pieces(:)
  end type

  type :: one_piece
    character(:), allocatable :: array
    integer(c_int64_t), allocatable :: lo(:), hi(:), at_lo(:), at_hi(:)
  end type

  !> One unit's place in a domain of messages. One that goes out of scope is left.
  type, public :: polyduct_domain
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: join => domain_join
    procedure :: unit => domain_unit
    procedure :: units => domain_units
    procedure :: barrier => domain_barrier
    procedure :: synchronise => domain_synchronise
    procedure :: handle_by => domain_handle_by !< call d%handle_by(name, handler): see polyduct_handler.
    procedure :: post => domain_post
    procedure :: poll => domain_poll
    procedure :: offer => domain_offer !< call d%offer(name, function): see polyduct_function.
    procedure :: serve => domain_serve !< Handles what comes until a polyduct_done says 1; or false.
    procedure :: region_size => domain_region_size
    procedure :: set_timeout => domain_set_timeout
    procedure :: give_up => domain_give_up
    procedure :: c_handle => domain_handle
    procedure :: leave => domain_leave
    final :: domain_end
    include 'polyduct_domains.inc'
  end type

  !> Shared memory of this unit that others put into and get from. One that goes out of scope is closed.
  type, public :: polyduct_region
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: close => region_close
    final :: region_end
  end type

  !> A call of a function of another unit, under way. One that goes out of scope is closed.
  type, public :: polyduct_call
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: is_done => call_is_done
    procedure :: cancel => call_cancel
    procedure :: close => call_close
    final :: call_end
    include 'polyduct_results.inc'
  end type

  !> What the writers of a port bring, or what there is in a file or a store. Arrays count from 1.
  type, public :: polyduct_listing
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: describe => listing_describe !< call l%describe(url)
    procedure :: count => listing_count
    procedure :: name => listing_name   !< l%name(n)
    procedure :: dtype => listing_dtype !< As NumPy has it, 'f4'.
    procedure :: shape => listing_shape
    final :: listing_end
  end type

  !> A layout bound to a shape and a number of units.
  type, public :: polyduct_layout
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: bind => layout_bind
    procedure :: text => layout_text
    procedure :: local_shape => layout_local_shape
    procedure :: c_handle => layout_handle
    procedure :: close => layout_close
    final :: layout_end
  end type

  !> What a handler of messages is: a procedure with bind(C).
  abstract interface
    subroutine polyduct_handler(user, from, args, payload, len) bind(C)
      import :: c_ptr, c_int32_t, c_size_t
      type(c_ptr), value :: user, payload
      integer(c_int32_t), value :: from
      integer(c_int32_t), intent(in) :: args(4)
      integer(c_size_t), value :: len
    end subroutine
    !> A function that other units call: polyduct_take gives its argument, polyduct_reply its result; 0, or
    !> anything else for a failure, whose words polyduct_reply_error says.
    function polyduct_function(user, argument, reply) bind(C) result(code)
      import :: c_ptr, c_int
      type(c_ptr), value :: user, argument, reply
      integer(c_int) :: code
    end function
    !> Whether what was waited for has come: 1 or 0.
    function polyduct_done(user) bind(C) result(done)
      import :: c_ptr, c_int
      type(c_ptr), value :: user
      integer(c_int) :: done
    end function
  end interface
  public :: polyduct_handler, polyduct_function, polyduct_done, polyduct_text, polyduct_take, polyduct_reply
  public :: polyduct_reply_error, polyduct_store_create

  ! Structures of polyduct.h, member by member.
  type, bind(C) :: c_options
    integer(c_size_t) :: struct_size = 0
    integer(c_int32_t) :: unit = 0, units = 0
    type(c_ptr) :: program = c_null_ptr, job = c_null_ptr, policy = c_null_ptr, on_loss = c_null_ptr
    integer(c_int32_t) :: depth = 0, readers = 0
    real(c_double) :: timeout = 0
    type(c_funptr) :: interrupt = c_null_funptr
    type(c_ptr) :: interrupt_user = c_null_ptr
    integer(c_int32_t) :: append = 0, stepped = 0, convert = 0, elem = 0, ndim = 0, chunk_ndim = 0
    type(c_ptr) :: shape = c_null_ptr, chunks = c_null_ptr, compress = c_null_ptr
    integer(c_int64_t) :: shard_bytes = 0
    type(c_ptr) :: attributes = c_null_ptr, dims = c_null_ptr, key = c_null_ptr
    integer(c_int32_t) :: trusted_network = 0, reserved = 0
  end type
  type, bind(C) :: c_array
    integer(c_size_t) :: struct_size = 0
    type(c_ptr) :: name = c_null_ptr
    integer(c_int32_t) :: elem = 0, ndim = 0
    type(c_ptr) :: shape = c_null_ptr, layout = c_null_ptr
    integer(c_int32_t) :: changes = 0, open_dim = 0
    type(c_ptr) :: attributes = c_null_ptr, dims = c_null_ptr
  end type
  type, bind(C) :: c_piece
    integer(c_size_t) :: struct_size = 0
    type(c_ptr) :: array = c_null_ptr
    integer(c_int32_t) :: ndim = 0, at_ndim = 0
    type(c_ptr) :: lo = c_null_ptr, hi = c_null_ptr, at_lo = c_null_ptr, at_hi = c_null_ptr
  end type
  type, bind(C) :: c_rule
    integer(c_size_t) :: struct_size = 0
    type(c_ptr) :: pattern = c_null_ptr, layout = c_null_ptr
    integer(c_int32_t) :: elem = 0, convert = 0, ndim = 0, join = 0, axis = 0, piece_count = 0
    type(c_ptr) :: shape = c_null_ptr, pieces = c_null_ptr
  end type
  type, bind(C) :: c_part
    integer(c_size_t) :: struct_size = 0
    type(c_ptr) :: name = c_null_ptr, layout = c_null_ptr
    integer(c_int32_t) :: elem = 0, ndim = 0
    integer(c_int64_t) :: shape(most) = 0
    integer(c_int32_t) :: local_ndim = 0, changes = 0
    integer(c_int64_t) :: local_shape(most) = 0, local_strides(most) = 0, lo(most) = 0, hi(most) = 0
    integer(c_size_t) :: offset = 0, len = 0
    integer(c_int32_t) :: open_dim = 0
  end type
  type, bind(C) :: c_domain_options
    integer(c_size_t) :: struct_size = 0
    integer(c_int32_t) :: unit = 0, units = 0
    type(c_ptr) :: name = c_null_ptr, on_loss = c_null_ptr
    real(c_double) :: timeout = 0, open_timeout = 0
    type(c_funptr) :: interrupt = c_null_funptr
    type(c_ptr) :: interrupt_user = c_null_ptr
    type(c_ptr) :: key = c_null_ptr
    integer(c_int32_t) :: trusted_network = 0, reserved = 0
  end type
  type, bind(C) :: c_mail
    integer(c_size_t) :: struct_size = 0
    integer(c_int32_t) :: from = 0, tag = 0, elem = 0, ndim = 0
    integer(c_int64_t) :: shape(most) = 0
    integer(c_int32_t) :: column_major = 0, reserved = 0
    type(c_ptr) :: data = c_null_ptr
    integer(c_size_t) :: len = 0
    type(c_ptr) :: owner = c_null_ptr
  end type

  ! What a call has given: a code, and of an error the text.
  type :: outcome
    integer(c_int) :: code = 0
    character(:), allocatable :: text
  end type

  ! Text for C, as long as a call needs it.
  type :: option_texts
    character(kind=c_char), allocatable :: program(:), policy(:), on_loss(:), attributes(:), dims(:), key(:)
  end type
  type :: piece_texts
    character(kind=c_char), allocatable :: array(:)
  end type
  type :: array_texts
    character(kind=c_char), allocatable :: name(:), layout(:), attributes(:), dims(:)
    type(piece_texts), allocatable :: pieces(:)
    type(c_piece), allocatable :: given(:)
  end type

  character(*), parameter :: gaps = 'the array is not contiguous; expected one without gaps, or a copy of it'

  include 'polyduct_c.inc'
  include 'polyduct_generics.inc'

contains

  include 'polyduct_arrays.inc'
  include 'polyduct_calls.inc'
  include 'polyduct_more.inc'
  include 'polyduct_stores.inc'

end module
