! One side of a port in Fortran, for tests whose other side is Python: ports ROLE URL UNIT UNITS.
module functions
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, real64
  use polyduct
  implicit none
  integer :: heard = 0

contains

  !> Each row of an array twice, one below the other; fails for another rank.
  function twice(user, argument, reply) bind(C) result(code)
    type(c_ptr), value :: user, argument, reply
    integer(c_int) :: code
    real(real64), allocatable :: a(:, :), b(:, :)
    integer :: status, i
    code = 1
    if (c_associated(user)) return
    call polyduct_take(argument, a, stat=status)
    if (status /= POLYDUCT_OK) then
      call polyduct_reply_error(reply, 'no matrix of doubles')
      return
    end if
    allocate (b(2*size(a, 1), size(a, 2)))
    do i = 1, size(a, 1)
      b(2*i - 1, :) = a(i, :)
      b(2*i, :) = a(i, :)
    end do
    call polyduct_reply(reply, b)
    code = 0
  end function

  subroutine note(user, from, args, payload, len) bind(C)
    type(c_ptr), value :: user, payload
    integer(c_int32_t), value :: from
    integer(c_int32_t), intent(in) :: args(4)
    integer(c_size_t), value :: len
    if (.not. c_associated(user) .and. from >= 0 .and. args(1) == 7 .and. len == 0) heard = heard + 1
    if (c_associated(payload)) heard = heard + 1
  end subroutine

  function is_heard(user) bind(C) result(done)
    type(c_ptr), value :: user
    integer(c_int) :: done
    done = 0
    if (heard > 0 .and. .not. c_associated(user)) done = 1
  end function
end module

program ports
  use functions
  use, intrinsic :: iso_fortran_env, only: error_unit, int8, int32, int64, real32, real64
  use polyduct
  implicit none
  integer, parameter :: rows = 6, columns = 10
  character(1024) :: role, url, text
  integer :: unit, units

  interface
    function own_poll(domain, handled) bind(C, name='polyduct_poll') result(code)
      import :: c_int, c_ptr
      type(c_ptr), value :: domain, handled
      integer(c_int) :: code
    end function
  end interface

  call get_command_argument(1, role)
  call get_command_argument(2, url)
  call get_command_argument(3, text)
  read (text, *) unit
  call get_command_argument(4, text)
  read (text, *) units
  select case (role)
  case ('write')
    call write_rows
  case ('read')
    call read_columns
  case ('write_bundle')
    call write_bundle
  case ('read_bundle')
    call read_bundle
  case ('view')
    call view_rows
  case ('write_open')
    call write_open
  case ('read_open')
    call read_open
  case ('notes')
    call notes
  case ('store')
    call store
  case ('keyed')
    call keyed
  case ('calls')
    call calls
  case ('ranks')
    call all_ranks
  case ('messages')
    call messages
  case ('misuse')
    call misuse
  case ('stop')
    call stops
  case ('wait')
    call waits
  case default
    error stop 2
  end select

contains

  subroutine check(what, words)
    logical, intent(in) :: what
    character(*), intent(in) :: words
    if (what) return
    write (error_unit, '(2a)') 'not so: ', words
    error stop 3
  end subroutine

  pure integer function value(step, i, j)
    integer, intent(in) :: step, i, j
    value = step*1000 + (i - 1)*columns + j - 1
  end function

  subroutine write_rows
    type(polyduct_port) :: out
    real(real64), allocatable :: a(:, :)
    real(real64), pointer :: p(:, :)
    integer :: step, i, j
    integer(int64) :: first(2), last(2)
    call out%open_write(url, [rows, columns], 'f8', 'block,*', unit=unit, units=units, program='fw', timeout=60d0)
    call check(out%unit() == unit .and. out%units() == units, 'the unit')
    call check(out%layout() == 'block,*;order=F', 'the layout is '//out%layout())
    first = out%lower()
    last = out%upper()
    call check(all(out%local_shape() == last - first + 1), 'the part')
    allocate (a(first(1):last(1), first(2):last(2)))
    do step = 0, 2
      do j = lbound(a, 2), ubound(a, 2)
        do i = lbound(a, 1), ubound(a, 1)
          a(i, j) = value(step, i, j)
        end do
      end do
      if (step == 1) then
        call out%step(p)
        p = a
        call out%publish()
      else
        call out%write(a)
      end if
    end do
    call out%close()
  end subroutine

  subroutine read_columns
    type(polyduct_port) :: in
    real(real64), allocatable :: a(:, :)
    real(real64), pointer :: p(:, :)
    integer :: step, status
    integer(int64) :: first(2), sizes(2)
    call in%open_read(url, '*,block', unit=unit, units=units, program='fr', timeout=60d0)
    first = in%lower()
    sizes = in%local_shape()
    allocate (a(sizes(1), sizes(2)))
    call in%read(a, step)
    call check(step == 0, 'the first step')
    call compare(a, first, 0)
    call check(in%next(p), 'there is a second step')
    call compare(p, first, 1)
    call in%read(a, stat=status)
    call check(status == POLYDUCT_OK, 'the third step')
    call compare(a, first, 2)
    call in%read(a, stat=status)
    call check(status == POLYDUCT_END .and. .not. in%next(p), 'the end')
    call in%close()
  end subroutine

  ! Steps where the writer has put them.
  subroutine view_rows
    type(polyduct_port) :: in
    real(real64), pointer :: p(:, :)
    real(real64) :: a(rows, columns)
    integer :: step, status
    character(5) :: short
    call in%open_read(url, '*,*', unit=unit, units=units, program='fv', timeout=60d0)
    step = 0
    do while (in%view(p))
      call compare(p, in%lower(), step)
      call in%read(a, stat=status, errmsg=short)
      call check(status == POLYDUCT_MISUSE .and. short == 'the p', 'the step is looked at: '//short)
      call in%view_end()
      step = step + 1
    end do
    call check(step == 3 .and. .not. associated(p), 'three steps')
    call in%view_end(stat=status)
    call check(status == POLYDUCT_MISUSE, 'nothing to give back')
    call in%close()
  end subroutine

  ! What write_bundle of ports.c writes.
  subroutine write_open
    type(polyduct_arrays) :: arrays
    type(polyduct_port) :: out
    real(real64), pointer :: u(:, :)
    integer(int64), pointer :: cells(:)
    integer(int64) :: first(2)
    integer :: step, i, j, status
    call arrays%add('u', [4, 3], 'f8', 'block,*')
    call arrays%add('cells', [100], 'i8', changes=POLYDUCT_OPEN, open_dim=1)
    call out%open_write_arrays(url, arrays, unit=unit, units=units, program='fo', timeout=60d0)
    call out%bring('cell', [1], stat=status)
    call check(status == POLYDUCT_MISUSE, 'an array that there is not')
    first = out%lower('u')
    do step = 0, 1
      call check(out%next_step() == step, 'the next step')
      call out%bring('cells', [unit + step + 1])
      call out%begin()
      call out%at('u', u)
      call out%at('cells', cells)
      do j = 1, size(u, 2)
        do i = 1, size(u, 1)
          u(i, j) = step*100 + (first(1) + i - 2)*3 + j - 1
        end do
      end do
      call check(size(cells) == unit + step + 1, 'the piece')
      cells = [(int(unit*10 + i - 1, int64), i=1, size(cells))]
      call out%set('step', step)
      call out%set('time', 0.5d0*step)
      call out%set('units', 'm'//char(195)//char(188))
      call out%set_bytes('raw', [0_int8, 1_int8])
      call out%publish()
    end do
    call out%close()
  end subroutine

  ! The same, read: `u` put together with itself as planes of a new dimension, and a corner of it.
  subroutine read_open
    type(polyduct_arrays) :: arrays
    type(polyduct_port) :: in
    real(real64), pointer :: both(:, :, :), corner(:, :), row(:)
    integer(int64), pointer :: cells(:)
    integer(int8), allocatable :: raw(:)
    integer :: step, i
    call arrays%take('both', '*,*,*', join=POLYDUCT_STACKED, axis=1)
    call arrays%piece('u')
    call arrays%piece('u')
    call arrays%take('corner', '*,*')
    call arrays%piece('u', lo=[2, 2], hi=[3, POLYDUCT_TO_END])
    call arrays%take('row', '*')
    call arrays%piece('u', lo=[4, 1], hi=[POLYDUCT_ALONE, 3])
    call arrays%take('cel*', '*')
    call in%open_read_arrays(url, arrays, unit=unit, units=units, program='fp', timeout=60d0)
    step = 0
    do while (in%peek())
      call check(all(in%shape('cells') == [2*(step + 1) + 1]), 'the size before the step is read')
      call check(in%come(), 'the step')
      call in%get_bytes('raw', raw)
      call check(size(raw) == 2 .and. raw(2) == 1, 'bytes')
      call in%at('both', both)
      call in%at('corner', corner)
      call in%at('row', row)
      call in%at('cells', cells)
      call check(all(shape(both) == [2, 4, 3]) .and. both(2, 3, 1) == step*100 + 6, 'two planes')
      call check(all(shape(corner) == [2, 2]) .and. corner(1, 1) == step*100 + 4, 'a corner')
      call check(corner(2, 2) == step*100 + 8 .and. all(row == step*100 + [9, 10, 11]), 'a row')
      call check(all(cells(:step + 1) == [(i - 1, i=1, step + 1)]) .and. cells(step + 2) == 10, 'the pieces')
      step = step + 1
    end do
    call check(step == 2, 'two steps')
    call in%close()
  end subroutine

  subroutine notes
    type(polyduct_port) :: port
    real(real32) :: a(2, 3)
    a = 1
    call port%open_write(url, shape(a), 'f4', attributes='{"units": "m"}', dims='x,y')
    call port%write(a)
    call port%close()
    call port%open_read(url)
    call check(port%attributes() == '{"units":"m"}' .and. port%dims() == 'x,y', 'what is written down')
    call check(port%steps() == 1, 'one step')
  end subroutine

  ! A store, boxes of an array in it, and what it says of it.
  subroutine store
    type(polyduct_port) :: port
    type(polyduct_listing) :: there
    integer(int32) :: a(20, 30), found(2, 3), gaps(4, 3)
    real(real32) :: odd(2, 3)
    character(200) :: words
    integer :: i, j, status
    a = reshape([((30*i + j, i=0, 19), j=0, 29)], shape(a))
    call polyduct_store_create(url, 3, 1, 4096_int64)
    call port%open_write('store:'//trim(url)//'/table', shape(a), 'i4')
    call port%write(a)
    call port%close()
    call port%open_read('store:'//trim(url)//'/table')
    call port%read_box(0, [6, 7], found)
    call check(all(found == a(6:7, 7:9)), 'a box')
    gaps = 0
    call port%read_box(0, [6, 7], gaps(::2, :))
    call check(all(gaps(::2, :) == a(6:7, 7:9)) .and. all(gaps(2::2, :) == 0), 'an array with gaps')
    call port%write_box(0, [6, 7], reshape([0, -3, -1, -4, -2, -5], [2, 3]))
    call port%read_box(0, [20, 29], found, stat=status, errmsg=words)
    call check(status == POLYDUCT_MISUSE .and. index(words, 'expected a range within 0..20') > 0, words)
    call port%read_box(0, [1], found, stat=status)
    call check(status == POLYDUCT_MISUSE, 'a box of another number of dimensions')
    call port%read_box(0, [6, 7], odd, stat=status)
    call check(status == POLYDUCT_WRONG_TYPE, 'a box of another type')
    call port%close()
    call port%read_box(0, [6, 7], found, stat=status)
    call check(status < 0, 'a port that is closed')
    call there%describe('store:'//trim(url)//'/table')
    call check(there%count() == 1 .and. there%dtype(1) == 'i4', 'what there is')
    call check(all(there%shape(1) == [20, 30]), 'its shape')
    call there%describe(trim(url)//'/none.npy', stat=status)
    call check(status < 0, 'what there is not')
  end subroutine

  subroutine keyed
    type(polyduct_port) :: port
    integer(int32) :: a(3)
    integer :: status
    character(*), parameter :: key = repeat('0123456789abcdef', 4)
    a = [1, 2, 3]
    if (unit == 0) then
      call port%open_write(url, [3], 'i4', '*', unit=0, units=1, program='w', timeout=60d0, key=key)
      call port%write(a)
    else
      call port%open_read(url, '*', unit=0, units=1, program='r', timeout=60d0, key=key)
      a = 0
      call port%read(a)
      call check(all(a == [1, 2, 3]), 'the array')
    end if
    call port%close()
    call port%open_read(url, '*', unit=0, units=1, key='12', stat=status)
    call check(status == POLYDUCT_BAD_OPTION, 'a key')
  end subroutine

  ! Each unit calls the next one, and writes into a region of it.
  subroutine calls
    type(polyduct_domain) :: d
    type(polyduct_region) :: region
    type(polyduct_call) :: first, second
    real(real64) :: a(2, 2), back(2)
    real(real64), allocatable :: b(:, :)
    integer(int32), allocatable :: n(:)
    real(real64), pointer :: mine(:), none(:)
    integer :: right, left, status
    character(300) :: why
    call d%join(name=trim(url), unit=unit, units=units, timeout=60d0)
    right = mod(unit + 1, units)
    left = mod(unit + units - 1, units)
    call d%offer('twice', twice)
    call d%handle_by('note', note)
    call d%region(region, 3, mine, [4])
    mine = -1
    call d%region(region, 4, none, [4], stat=status)
    call check(status == POLYDUCT_MISUSE .and. .not. associated(none), 'a region that is there')
    call d%synchronise()
    call check(d%region_size(right, 3) == 32, 'the size')
    call check(own_poll(d%c_handle(), c_null_ptr) == POLYDUCT_OK, 'a function of C''s by its handle')
    call d%put(right, 3, [real(unit, real64), 0.5d0], offset=1_int64)
    call d%get(right, 3, back, offset=1_int64)
    call check(all(back == [real(unit, real64), 0.5d0]), 'what was put')
    call d%put(right, 3, [9d0], offset=3_int64, notify='note', args=[7])
    call check(d%serve(is_heard, timeout=60d0), 'the note')
    call check(mine(1) == -1 .and. mine(2) == left .and. mine(3) == 0.5d0 .and. mine(4) == 9, 'the region')
    call d%get(right, 3, back, offset=3_int64, stat=status)
    call check(status == POLYDUCT_REGION_ERROR, 'beyond the end')
    call d%put(right, 3, back, offset=-1_int64, stat=status)
    call check(status == POLYDUCT_MISUSE, 'before the begin')
    a = reshape([1, 2, 3, 4], [2, 2])*(unit + 1)
    call d%call(first, right, 'twice', a, timeout=60d0)
    call d%call(second, right, 'twice', back, timeout=60d0)
    call first%result(b)
    call check(all(shape(b) == [4, 2]) .and. all(b(:, 2) == [3, 3, 4, 4]*(unit + 1)), 'the result')
    call check(first%is_done(), 'the call is done')
    call polyduct_take(c_null_ptr, n, stat=status)
    call check(status == POLYDUCT_MISUSE, 'no argument')
    call polyduct_reply(c_null_ptr, a, stat=status)
    call check(status == POLYDUCT_MISUSE, 'no reply')
    call second%result(b, stat=status, errmsg=why)
    call check(status == POLYDUCT_CALL_FAILED .and. index(why, 'no matrix of doubles') > 0, trim(why))
    call d%call(second, right, 'twice', a)
    call second%result(n, stat=status)
    call check(status == POLYDUCT_WRONG_TYPE .and. .not. allocated(n), 'a result of another type')
    call d%call(second, right, 'twice', a(1:1, :), stat=status)
    call check(status == POLYDUCT_MISUSE, 'gaps')
    call d%barrier()
    call region%close()
    call d%leave()
  end subroutine

  subroutine compare(a, first, step)
    real(real64), intent(in) :: a(:, :)
    integer(int64), intent(in) :: first(2)
    integer, intent(in) :: step
    integer :: i, j
    do j = 1, size(a, 2)
      do i = 1, size(a, 1)
        call check(a(i, j) == value(step, int(first(1)) + i - 1, int(first(2)) + j - 1), 'an element')
      end do
    end do
  end subroutine

  subroutine write_bundle
    type(polyduct_arrays) :: arrays
    type(polyduct_port) :: out
    real(real32), pointer :: u(:, :)
    integer(int64), pointer :: n(:)
    integer :: step
    integer(int64) :: first(2)
    call arrays%add('u', [4, 3], 'f4', 'block,*')
    call arrays%add('n', [5], 'int64')
    call out%open_write_arrays(url, arrays, unit=unit, units=units, program='fb', timeout=60d0)
    first = out%lower('u')
    do step = 0, 1
      call out%begin()
      call out%at('u', u)
      call out%at('n', n)
      u = step*100 + real(first(1))
      n = step
      call out%set('step', step)
      call out%set('time', 0.5d0*step)
      call out%set('units', 'm/s')
      call out%publish()
    end do
    call out%close()
  end subroutine

  subroutine read_bundle
    type(polyduct_arrays) :: arrays
    type(polyduct_port) :: in
    real(real32), pointer :: u(:, :)
    integer :: step, found, status
    real(real64) :: time
    character(:), allocatable :: words
    character(200) :: why
    call arrays%take('u', '*,block')
    call in%open_read_arrays(url, arrays, unit=unit, units=units, program='fc', timeout=60d0)
    step = 0
    do while (in%come())
      call in%at('u', u)
      call in%get('step', found)
      call in%get('time', time)
      call in%get('units', words)
      call check(found == step .and. time == 0.5d0*step .and. words == 'm/s', 'the values')
      call check(size(u, 1) == 4 .and. all(u(1, :) == step*100 + 1), 'the array')
      call in%get('mass', time, stat=status, errmsg=why)
      call check(status == POLYDUCT_MISUSE .and. index(why, 'mass') > 0, 'a value that there is not')
      step = step + 1
    end do
    call check(step == 2, 'two steps')
    call in%close()
  end subroutine

  ! Every rank, and every type, there and back by files.
  subroutine all_ranks
    integer(int32) :: i1(3)
    integer(int64) :: i2(2, 3)
    real(real32) :: r3(2, 3, 4)
    real(real64) :: r4(2, 1, 3, 2)
    complex(real32) :: c2(3, 2)
    complex(real64) :: c1(4)
    integer :: n
    type(polyduct_port) :: out
    i1 = [(n, n=1, 3)]
    i2 = reshape([(int(n, int64)*10_int64**12, n=1, 6)], shape(i2))
    r3 = reshape([(real(n), n=1, 24)], shape(r3))
    r4 = reshape([(real(n, real64), n=1, 12)], shape(r4))
    c2 = reshape([(cmplx(n, -n), n=1, 6)], shape(c2))
    c1 = [(cmplx(n, 0.5d0, real64), n=1, 4)]
    call out%open_write(trim(url)//'/i1.npy', shape(i1), 'i4')
    call out%write(i1)
    call out%close()
    call out%open_write(trim(url)//'/i2.npy', shape(i2), 'i8')
    call out%write(i2)
    call out%close()
    call out%open_write(trim(url)//'/r3.npy', shape(r3), 'f4')
    call out%write(r3)
    call out%close()
    call out%open_write(trim(url)//'/r4.npy', shape(r4), 'f8')
    call out%write(r4)
    call out%close()
    call out%open_write(trim(url)//'/c2.npy', shape(c2), 'c8')
    call out%write(c2)
    call out%close()
    call out%open_write(trim(url)//'/c1.npy', shape(c1), 'c16')
    call out%write(c1)
    call out%close()
    call again
  end subroutine

  subroutine again
    integer(int64) :: i2(2, 3)
    real(real64), pointer :: p(:, :, :, :)
    type(polyduct_port) :: in
    call in%open_read(trim(url)//'/i2.npy')
    call in%read(i2)
    call check(i2(2, 1) == 2*10_int64**12, 'an integer')
    call in%close()
    call in%open_read(trim(url)//'/r4.npy')
    call check(in%next(p), 'a step')
    call check(all(shape(p) == [2, 1, 3, 2]) .and. p(2, 1, 1, 1) == 2 .and. p(1, 1, 1, 2) == 7, 'a real')
    call in%close()
  end subroutine

  subroutine messages
    type(polyduct_domain) :: d
    real(real64) :: a(2, 3), b(2, 3)
    integer(int32) :: n(2)
    integer :: right, left, status, i
    call d%join(name=trim(url), unit=unit, units=units, timeout=60d0)
    right = mod(d%unit() + 1, d%units())
    left = mod(d%unit() + d%units() - 1, d%units())
    a = reshape([(100*unit + real(i, real64), i=1, 6)], shape(a))
    call d%send(right, a, tag=5)
    call d%recv(left, b, tag=5)
    call check(b(2, 1) == 100*left + 2 .and. b(1, 2) == 100*left + 3, 'an array')
    call d%recv(left, b, tag=6)
    call check(b(2, 1) == 3 .and. b(1, 2) == 1, 'an array in rows')
    call d%send(right, n, tag=7)
    call d%recv(left, b, tag=7, stat=status)
    call check(status == POLYDUCT_WRONG_TYPE, 'an array of another type')
    call d%barrier()
    call d%leave()
  end subroutine

  subroutine misuse
    type(polyduct_port) :: out, other
    type(polyduct_layout) :: layout
    real(real32), target :: a(4, 6)
    real(real32), pointer :: p(:, :)
    real(real64) :: d(4, 6)
    integer :: status
    character(300) :: why
    call out%close(stat=status, errmsg=why)
    call check(status == POLYDUCT_MISUSE .and. index(why, 'NULL') > 0, 'a port that was never open')
    call out%open_write(trim(url)//'/a.npy', [4, 6], 'f4', 'blook', stat=status, errmsg=why)
    call check(status == POLYDUCT_LAYOUT_ERROR .and. index(why, 'blook') > 0, 'a layout: '//trim(why))
    call out%open_write(trim(url)//'/a.npy', [4, 6], 'q4', stat=status)
    call check(status == POLYDUCT_LAYOUT_ERROR, 'a type')
    call out%open_write(trim(url)//'/a.npy', [4, 6], 'f4')
    call out%open_write(trim(url)//'/b.npy', [4, 6], 'f4', stat=status, errmsg=why)
    call check(status == POLYDUCT_MISUSE .and. index(why, 'is open') > 0, 'a port that is open')
    call out%write(d, stat=status, errmsg=why)
    call check(status == POLYDUCT_WRONG_TYPE, 'another type')
    call out%write(a(:, :5), stat=status, errmsg=why)
    call check(status == POLYDUCT_WRONG_SIZE .and. index(why, '(4, 5), this unit''s part (4, 6)') > 0, trim(why))
    call gaps(out)
    call out%at('', p, stat=status, errmsg=why)
    call check(status == POLYDUCT_MISUSE .and. index(why, 'no step') > 0, 'no step')
    call out%abort('of no use')
    call out%write(a, stat=status)
    call check(status == POLYDUCT_MISUSE, 'a port that was closed')
    call other%open_write(trim(url)//'/c.npy', [4, 6], 'f4', '*,*;order=C')
    call other%write(a, stat=status, errmsg=why)
    call check(status == POLYDUCT_MISUSE .and. index(why, 'order=F') > 0, 'rows: '//trim(why))
    call layout%bind('block,*', [5, 4], 2)
    call check(layout%text() == 'block,*;order=F' .and. all(layout%local_shape(1) == [2, 4]), 'a layout')
    ! `other` goes out of scope open, and `layout` with it.
  end subroutine

  subroutine gaps(out)
    type(polyduct_port), intent(in) :: out
    real(real32) :: wide(8, 6)
    integer :: status
    character(300) :: why
    wide = 0
    call out%write(wide(::2, :), stat=status, errmsg=why)
    call check(status == POLYDUCT_MISUSE .and. index(why, 'not contiguous') > 0, 'gaps')
  end subroutine

  subroutine stops
    type(polyduct_port) :: in
    call in%open_read(trim(url)//'/missing.npy')
  end subroutine

  subroutine waits
    type(polyduct_port) :: in
    real(real64) :: a(rows, columns)
    integer :: status
    character(300) :: why
    call in%open_read(url, '*,*', unit=0, units=1, program='fx', timeout=60d0)
    print '(a)', 'open'
    flush (6)
    call in%read(a, stat=status, errmsg=why)
    print '(i0,2a)', status, ' ', trim(why)
  end subroutine
end program
