! One side of a port in Fortran, for tests whose other side is Python: ports ROLE URL UNIT UNITS.
program ports
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
  use polyduct
  implicit none
  integer, parameter :: rows = 6, columns = 10
  character(1024) :: role, url, text
  integer :: unit, units

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
